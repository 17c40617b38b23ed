"""Real clusters of Ray and Dask with two workers give the same bytes as processes."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from augury.core.errors import AuguryError
from augury.executor import Executor
from tests.executor import tasks
from tests.executor.wide_work import ROOT, fit, import_traces, sweep, write_traces

pytestmark = pytest.mark.more

PROCESSES = ("--engine", "processes", "--jobs", "2")
NUM_RANKS = 16


@pytest.fixture(scope="module", params=["ray", "dask"])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Options that name the cluster."""
    name = request.param
    # A secret of this test's own: Ray requires one of all that connect to its cluster.
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in secret.items():
            patch.setenv(variable, value)
        yield from _serve(name)


def _serve(name: str) -> Iterator[tuple[str, ...]]:
    serving = subprocess.Popen(
        [sys.executable, "-m", "tests.executor.local_cluster", name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert serving.stdin is not None
    assert serving.stdout is not None
    try:
        address = serving.stdout.readline().strip()
        assert address, f"the cluster of {name} did not start"
        yield ("--engine", name, "--address", address)
        serving.stdin.close()
        assert serving.wait(timeout=60) == 0
    finally:
        if serving.poll() is None:
            os.killpg(serving.pid, signal.SIGKILL)
        serving.stdout.close()
        serving.wait()


def test_an_import_of_16_ranks_writes_the_same_files(tmp_path: Path, cluster: tuple[str, ...]):
    traces = write_traces(tmp_path / "traces", NUM_RANKS)
    expected = import_traces(traces, tmp_path / "processes", *PROCESSES)
    assert import_traces(traces, tmp_path / "cluster", *cluster) == expected


def test_a_sweep_prints_the_same_result(tmp_path: Path, cluster: tuple[str, ...]):
    expected = sweep(tmp_path, *PROCESSES)
    assert '"fidelity": "replay"' in expected
    assert sweep(tmp_path, *cluster, "--jobs", "2") == expected


def test_fits_of_held_out_rows_print_the_same_result(cluster: tuple[str, ...]):
    assert fit(*cluster) == fit(*PROCESSES)


def test_a_damaged_trace_is_named_by_the_worker_that_read_it(
    tmp_path: Path, cluster: tuple[str, ...]
):
    traces = write_traces(tmp_path / "traces", 4)
    traces[2].write_bytes(traces[2].read_bytes()[:100])
    with pytest.raises(AssertionError, match=r"augury: error: .*rank-00002.* is truncated"):
        import_traces(traces, tmp_path / "out", *cluster)


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_that_does_not_answer_is_one_error(engine: str):
    executor = Executor(engine=engine, address="127.0.0.1:9")  # type: ignore[arg-type]
    with pytest.raises(AuguryError, match=r"no (Ray|Dask) cluster answers at 127\.0\.0\.1:9"):
        next(executor.run(tasks.square, [1]))
