from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from augury.core.cluster import cluster_file
from augury.core.cluster.cluster import Cluster, NetworkLevel
from augury.core.cluster.cluster_file import PRESETS, find_cluster, load_cluster, save_cluster
from augury.core.cluster.device import Precision
from augury.core.errors import InputError

ABCI, V100 = find_cluster("abci"), find_cluster("v100").described_device
DOCUMENT = Path(__file__).parents[2] / "docs" / "oracle.md"

DESCRIPTION = """
name = "mine"
[device]
name = "D"
memory_bytes = 1000
memory_bandwidth_bytes_per_s = 2e9
[device.flops_per_s]
fp32 = 1e12
[[level]]
name = "node"
devices = 2
latency_ns = 100
bandwidth_bytes_per_s = 1000
[[level]]
name = "all"
devices = 8
latency_ns = 300
bandwidth_bytes_per_s = 10
oversubscription = 1.5
"""


def _load(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return load_cluster(path)


def test_a_description(tmp_path: Path):
    cluster = _load(tmp_path, DESCRIPTION)
    assert cluster.name == "mine"
    assert cluster.described_device.flops_per_s == {Precision.FP32: 1e12}
    assert [level.name for level in cluster.levels] == ["node", "all"]
    assert cluster.num_devices == 8
    assert cluster.price_per_device_hour is None


def test_saved_and_loaded(tmp_path: Path):
    changed = DESCRIPTION.replace('"mine"', r'"a \\ \"b\" \u007f \U0001F600"')
    for number, cluster in enumerate([_load(tmp_path, changed), *map(find_cluster, PRESETS)]):
        path = tmp_path / f"{number}.toml"
        save_cluster(cluster, path)
        assert load_cluster(path) == cluster


def test_a_network_without_devices_is_refused_where_devices_count(tmp_path: Path):
    levels = DESCRIPTION[DESCRIPTION.index("[[level]]") :]
    cluster = _load(tmp_path, levels)
    assert cluster.device is None
    with pytest.raises(InputError, match="no device") as refused:
        _ = cluster.described_device
    assert refused.value.remedy


def test_the_documents_example(tmp_path: Path):
    text = re.search(r"```\n(name = .*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert text is not None
    cluster = _load(tmp_path, text[1])
    assert cluster.device == find_cluster("a100").device
    assert cluster.price_per_device_hour == 2.5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name = ", "nome = "), "nome"),
        (('devices = 2', 'devices = -2'), "node"),
        (('devices = 2', 'devices = 2.5'), "int"),
        (('devices = 2', 'devices = 9'), "fewer devices"),
        (('devices = 2', 'device = 2'), "device"),
        (('fp32 = 1e12', 'fp33 = 1e12'), "fp33"),
        (('fp32 = 1e12', 'fp32 = nan'), "figures"),
        (('fp32 = 1e12', 'fp32 = inf'), "figures"),
        (('fp32 = 1e12', ''), "figures"),
        (('memory_bytes = 1000', 'memory_bytes = 0'), "figures"),
        (('name = "mine"', 'name = "mine"\nprice_per_device_hour = -1'), "price"),
        (('name = "mine"', 'name = [['), "TOML"),
        (('name = "mine"', 'name = 3'), "str"),
        (('oversubscription = 1.5', 'oversubscription = 0.5'), "all"),
        ((DESCRIPTION, ""), "level"),
        ((DESCRIPTION, 'device = "nothing"\nlevel = []'), "nothing"),
        ((DESCRIPTION, 'device = "V100"\nlevel = []'), "0 levels"),
        ((DESCRIPTION, "x" * 20_000), "16.4 kB"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, change: tuple[str, str], says: str):
    with pytest.raises(InputError, match=re.escape(says)) as failed:
        _load(tmp_path, DESCRIPTION.replace(*change, 1))
    assert failed.value.remedy


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(InputError, match="cannot read") as failed:
        find_cluster(tmp_path / "none.toml")
    assert "abci" in failed.value.remedy


def test_presets():
    for name in PRESETS:
        cluster = find_cluster(name.upper())
        assert find_cluster(name) is cluster
        assert cluster.name == name
        assert cluster.num_devices >= 1024
    shipped = Path(cluster_file.__file__).with_name("presets").iterdir()
    assert sorted(path.name for path in shipped) == sorted(f"{name}.toml" for name in PRESETS)
    assert ABCI.device is V100
    assert V100.memory_bytes == 16 << 30


def test_a_precision_that_a_device_lacks():
    with pytest.raises(InputError, match="V100 has no figure for tf32"):
        V100.reached_flops_per_s(Precision.TF32)


def test_levels_of_a_fat_tree():
    names = [ABCI.levels[i].name for i in ABCI.level_of(np.array([1.0, 4, 5, 36, 37, 137, 9999]))]
    assert names == ["node", "node", "leaf", "leaf", "rack", "system", "system"]


def test_flows_share_the_narrowest_level():
    cluster = Cluster(
        name="narrow",
        device=V100,
        levels=(
            NetworkLevel(name="node", devices=4, latency_ns=1, bandwidth_bytes_per_s=100),
            NetworkLevel(name="rack", devices=16, latency_ns=1, bandwidth_bytes_per_s=10, links=2),
            NetworkLevel(
                name="all", devices=64, latency_ns=1, bandwidth_bytes_per_s=50, links=8,
                oversubscription=8,
            ),
        ),
    )  # fmt: skip
    level = np.array([0, 1, 2])
    assert cluster.sharing(level, np.full(3, 4.0)).tolist() == [1, 2, 4]
    assert cluster.sharing(level, np.full(3, 1.0)).tolist() == [1, 1, 1]
    # A ring is as fast as its slowest hop, also where the top is faster than what is below.
    assert cluster.seconds_per_byte(level).tolist() == [0.01, 0.1, 0.1]
