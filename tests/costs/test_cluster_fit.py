from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from augury.core.errors import InputError
from augury.core.trace.trace import Calibration
from augury.costs.cluster_fit import Timing, read_timings, timings_of, with_timings
from tests.build.recorded_runs import ddp_run
from tests.oracle.small import CLUSTER

NCCL = """# nThread 1 nGpus 4 minBytes 1048576 maxBytes 4194304 step: 2(factor)
#
# Using devices
#  Rank  0 Group  0 Pid  100 on   host device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid  100 on   host device  1 [0x0a] NVIDIA A100
#  Rank  2 Group  0 Pid  100 on   host device  2 [0x47] NVIDIA A100
#  Rank  3 Group  0 Pid  100 on   host device  3 [0x4d] NVIDIA A100
#
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    84.20   12.45   18.68      0
     4194304       1048576     float     sum      -1    248.6   16.87   25.31      0
# Avg bus bandwidth    : 22.0
"""


def _timing(num: int, size: int, *, latency_s: float, rate: float) -> Timing:
    return Timing(
        collective="all_reduce",
        num_devices=num,
        size_bytes=size,
        time_s=2 * (num - 1) * (latency_s + size / num / rate),
    )


def test_levels_are_fitted_where_they_were_timed():
    timings = [
        _timing(num, size, latency_s=5e-6, rate=7e9)
        for num in (8, 16)
        for size in (1_000, 10_000, 1_000_000, 100_000_000)
    ]
    found = with_timings(CLUSTER, timings)
    assert found.levels[0] == CLUSTER.levels[0]
    assert found.levels[1].latency_ns == pytest.approx(5_000, rel=1e-3)
    assert found.levels[1].bandwidth_bytes_per_s == pytest.approx(7e9, rel=1e-3)
    assert found.levels[1].links == CLUSTER.levels[1].links


def test_what_nccl_tests_print(tmp_path: Path):
    path = tmp_path / "all_reduce.txt"
    path.write_text(NCCL)
    timings = read_timings(path)
    assert [(one.collective, one.num_devices, one.size_bytes) for one in timings] == [
        ("all_reduce", 4, 1048576),
        ("all_reduce", 4, 4194304),
    ]
    assert timings[0].time_s == pytest.approx(84.2e-6)
    found = with_timings(CLUSTER, timings).levels[0]
    assert found.bandwidth_bytes_per_s == pytest.approx(28.7e9, rel=0.01)


def test_gathers_are_told_from_reductions(tmp_path: Path):
    path = tmp_path / "all_gather.txt"
    path.write_text(NCCL.replace("sum", "none").replace("18.68", " 9.34").replace("25.31", "12.65"))
    assert {one.collective for one in read_timings(path)} == {"all_gather"}


def test_a_table(tmp_path: Path):
    path = tmp_path / "timed.csv"
    path.write_text("collective,devices,size_bytes,time_s\nall-reduce,4,1000,1e-3\n")
    (one,) = read_timings(path)
    assert one == Timing(collective="all_reduce", num_devices=4, size_bytes=1000, time_s=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing\n",
        "collective,devices,size_bytes,time_s\n",
        "collective,devices,size_bytes,time_s\nall_reduce,4,1000\n",
        "collective,devices,size_bytes,time_s\nall_reduce,4,1000,nan\n",
        "collective,devices,size_bytes,time_s\nall_reduce,1,1000,1\n",
        "collective,devices,size_bytes,time_s\nbarrier,4,1000,1\n",
        "collective,devices\nall_reduce,4\n",
    ],
)
def test_what_is_no_timing_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "timed.csv"
    path.write_text(text)
    with pytest.raises(InputError) as failed:
        read_timings(path)
    assert "nccl-tests" in failed.value.remedy


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(InputError, match="cannot read"):
        read_timings(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not text"):
        read_timings(tmp_path / "binary")


def test_a_calibrated_run():
    trace = ddp_run(num_steps=2).trace()
    sizes = (1_000, 1_000_000)
    rows = [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=size,
            concurrent=concurrent,
            beside_compute=False,
            durations_ns=[round(1e9 * _timing(2, size, latency_s=1e-4, rate=1e9).time_s)] * 3,
        )
        for size in sizes
        for concurrent in (1, 2)
    ]
    timings = timings_of(trace.evolve(groups=[[0, 1]], calibration=rows))
    assert [one.size_bytes for one in timings] == list(sizes)
    level = with_timings(CLUSTER, timings).levels[0]
    assert level.latency_ns == pytest.approx(100_000, rel=0.01)
    assert level.bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.01)
    with pytest.raises(InputError, match="no collective"):
        with_timings(CLUSTER, timings_of(trace.evolve(calibration=[])))


def test_small_messages_tell_no_bandwidth():
    found = with_timings(
        CLUSTER, [Timing(collective="all_gather", num_devices=2, size_bytes=1, time_s=1e-5)]
    )
    assert np.isfinite(found.levels[0].bandwidth_bytes_per_s)
