from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.cluster.cluster import Cluster, Link
from augury.core.cluster.cluster_file import MAX_FILE_BYTES, load_cluster, save_cluster
from augury.core.errors import AuguryError, InputError, UsageError

links = st.builds(
    Link,
    latency_ns=st.integers(0, 10**9),
    bandwidth_bytes_per_s=st.integers(1, 10**12),
    overhead_ns=st.integers(0, 10**9),
)
clusters = st.builds(
    Cluster.of_hosts,
    num_hosts=st.integers(1, 1000),
    ranks_per_host=st.integers(1, 16),
    intra=links,
    inter=links,
)
GOOD = """
num_hosts = 2
ranks_per_host = 4
[intra]
latency_ns = 10
bandwidth_bytes_per_s = 1000
[inter]
latency_ns = 20
bandwidth_bytes_per_s = 100
"""


@given(cluster=clusters)
@settings(deadline=None)
def test_toml_round_trip(tmp_path_factory, cluster):
    path = tmp_path_factory.mktemp("cluster") / "cluster.toml"
    save_cluster(cluster, path)
    assert load_cluster(path) == cluster


def test_the_short_layout(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD)
    assert load_cluster(path) == Cluster.of_hosts(
        num_hosts=2,
        ranks_per_host=4,
        intra=Link(latency_ns=10, bandwidth_bytes_per_s=1000),
        inter=Link(latency_ns=20, bandwidth_bytes_per_s=100),
    )


def test_links_by_place():
    cluster = Cluster.of_hosts(
        num_hosts=2,
        ranks_per_host=2,
        intra=Link(latency_ns=1, bandwidth_bytes_per_s=10),
        inter=Link(latency_ns=2, bandwidth_bytes_per_s=10),
    )
    assert [cluster.host_of(rank) for rank in range(4)] == [0, 0, 1, 1]
    inside, between = cluster.levels
    assert cluster.link_of_hosts(1, 1) is inside
    assert cluster.link_of_hosts(0, 1) is between
    assert cluster.link_of_hosts(0, 7) is between  # a server outside of the cluster
    with pytest.raises(UsageError):
        cluster.host_of(4)


def test_transfer_rounds_up():
    link = Link(latency_ns=100, bandwidth_bytes_per_s=3_000_000_000, overhead_ns=7)
    assert link.send_ns(0) == 7
    assert link.send_ns(1) == 8
    assert link.send_ns(3) == 8
    assert link.transfer_ns(4) == 109


@pytest.mark.parametrize(
    "text",
    [
        "num_hosts = ",
        "num_hosts = 2",
        "a = " + "[" * 16_000,
        "a." * 2_000 + "b = 1",
        "num_hosts = " + "9" * 5_000,
        GOOD.replace("= 2\n", "= 0\n", 1),
        GOOD.replace("= 2\n", "= true\n", 1),
        GOOD.replace("= 2\n", "= 2.5\n", 1),
        GOOD.replace("= 2\n", f"= {10**30}\n", 1),
        GOOD.replace("latency_ns = 10", "latency_ns = -1"),
        GOOD.replace("latency_ns = 10", f"latency_ns = {10**30}"),
        GOOD.replace("= 1000", "= 0"),
        GOOD.replace("latency_ns = 10", "latency_ms = 10"),
        "colour = 'red'\n" + GOOD,
        "intra = 3\ninter = 4\nnum_hosts = 1\nranks_per_host = 1",
    ],
    ids=range(15),
)
def test_bad_files_say_why(tmp_path, text):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    assert caught.value.exit_code == 3
    assert str(path) in caught.value.cause
    assert caught.value.remedy


def test_unreadable_files(tmp_path):
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe\x00")
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    for path in (binary, large, tmp_path, tmp_path / "missing"):
        with pytest.raises(AuguryError) as caught:
            load_cluster(path)
        assert caught.value.exit_code == 3
