"""Wide work: order, laziness, errors and interrupts are the same whatever the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from augury.core.errors import AuguryError, DeadlockError, DefectError, InputError, UsageError
from augury.executor import ITEMS_PER_WORKER, Executor
from tests.executor import tasks

ROOT = Path(__file__).parents[2]
JOBS = 2
ENGINES = ("serial", "threads", "processes")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Executor]:
    """Starts workers for the first item."""
    monkeypatch.setattr("augury.executor.START_WORKERS_S", 0.0)
    return lambda engine: Executor(engine=engine, jobs=JOBS)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [0, 1, 2, 9])
def test_results_have_the_order_of_the_items(engine: str, number: int, at_once):
    found = list(at_once(engine).run(tasks.square, range(number)))
    assert found == [item * item for item in range(number)]


def test_processes_are_other_processes(at_once):
    found = set(at_once("processes").run(tasks.process_id, range(6)))
    assert os.getpid() not in found
    assert 1 <= len(found) <= JOBS


def test_short_work_starts_no_process():
    found = set(Executor(engine="processes", jobs=JOBS).run(tasks.process_id, range(6)))
    assert found == {os.getpid()}


def test_processes_start_once_the_work_takes_longer_than_starting_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("augury.executor.START_WORKERS_S", 1e-9)
    first, *others = Executor(engine="processes", jobs=JOBS).run(tasks.process_id, range(6))
    assert first == os.getpid()
    assert os.getpid() not in others


@pytest.mark.parametrize(("engine", "most"), [("serial", 1), ("threads", ITEMS_PER_WORKER * JOBS)])
def test_only_a_few_items_are_ahead_of_the_consumer(engine: str, most: int, at_once):
    tasks.STARTED.clear()
    results = at_once(engine).run(tasks.note_start, range(40))
    assert tasks.STARTED == []
    assert next(results) == 0
    assert sorted(tasks.STARTED) == list(range(most))
    results.close()  # type: ignore[attr-defined]
    assert len(tasks.STARTED) == most


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_error_in_the_order_of_the_items_is_raised(engine: str, at_once):
    with pytest.raises(InputError, match="file 0 is damaged") as caught:
        list(at_once(engine).run(tasks.slow_first, range(4)))
    assert caught.value.remedy == "record it again"


@pytest.mark.parametrize("engine", ENGINES)
def test_errors_of_workers_keep_their_class_and_fields(engine: str, at_once):
    results = at_once(engine).run(tasks.refuse, range(4))
    assert next(results) == 0
    with pytest.raises(DeadlockError, match="ops wait") as caught:
        next(results)
    assert (caught.value.cycle, caught.value.remedy) == (("a", "b"), "reorder them")


@pytest.mark.parametrize("engine", ENGINES)
def test_other_exceptions_are_defects_that_name_the_item(engine: str, at_once):
    asked = at_once(engine).run(tasks.unexpected, range(3), describe=_file_name)
    with pytest.raises(DefectError, match=r"KeyError at file-1: 1") as caught:
        list(asked)
    assert "in unexpected" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("engine", ENGINES)
def test_lack_of_memory_names_the_item(engine: str, at_once):
    with pytest.raises(AuguryError, match="out of memory at file-1") as caught:
        list(at_once(engine).run(tasks.no_memory, range(3), describe=_file_name))
    assert "--jobs" in caught.value.remedy


def _file_name(item: int) -> str:
    return f"file-{item}"


def test_a_killed_worker_is_reported_with_the_items_in_flight(at_once):
    with pytest.raises(AuguryError, match=r"a worker ended at one of: .*file-2") as caught:
        list(at_once("processes").run(tasks.die, range(4), describe=_file_name))
    assert "--engine serial" in caught.value.remedy
    # The next call has new workers.
    assert list(at_once("processes").run(tasks.square, range(3))) == [0, 1, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "cloud"}, "no engine 'cloud'"),
        ({"engine": "threads", "address": "host:1"}, "threads has no address"),
        ({"jobs": 0}, "0 jobs"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str):
    with pytest.raises(UsageError, match=message):
        Executor(**options)


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_an_engine_that_is_not_installed_names_its_extra(
    engine: str, module: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"the engine {engine} is not installed") as caught:
        next(Executor(engine=engine).run(tasks.square, [1]))  # type: ignore[arg-type]
    assert caught.value.remedy == f"pip install 'augury[{engine}]'"


@pytest.mark.parametrize("engine", ENGINES)
def test_progress_counts_items(engine: str, at_once):
    said: list[str] = []

    @contextmanager
    def show(work: str) -> Iterator[None]:
        said.append(work)
        yield

    list(at_once(engine).run(tasks.square, range(6), work="reading", progress=show))
    firsts = [0, 1, 2, 3, 4, 5] if engine == "serial" else [0, 4]
    assert said == [f"reading: {first} of 6" for first in firsts]


_INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, also under nohup
import augury.executor
from tests.executor import tasks
augury.executor.START_WORKERS_S = 0.0
print("ready", flush=True)
list(augury.executor.Executor(jobs=2).run(tasks.sleep_long, range(8)))
"""


def _processes_of(group: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(status.parent.name))
    return found


def _wait_until(condition, timeout_s: float = 30) -> bool:
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def _interrupt(main: subprocess.Popen) -> bool:
    """Interrupts all processes of a terminal; returns whether the first one is still running.
    While workers start, interrupts are ignored."""
    if main.poll() is None:
        os.killpg(main.pid, signal.SIGINT)
        time.sleep(0.5)
    return main.poll() is None


def test_an_interrupt_ends_the_workers():
    main = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert main.stdout is not None
        assert main.stderr is not None
        assert main.stdout.readline() == "ready\n"
        assert _wait_until(lambda: len(_processes_of(main.pid)) >= 1 + JOBS)
        assert _wait_until(lambda: not _interrupt(main), timeout_s=60)
        err = main.stderr.read()
        assert main.returncode != 0
        assert err.count("Traceback") <= 1, err  # that of the main process
        assert "KeyboardInterrupt" in err
        assert _wait_until(lambda: _processes_of(main.pid) == []), err
    finally:
        for process in _processes_of(main.pid):
            os.kill(process, signal.SIGKILL)
        main.communicate()
