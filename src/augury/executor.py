"""Runs one function on many items: in processes by default, or on a Ray or Dask cluster.

Results come in the order of the items and are equal whatever the engine. Work is dispatched in
waves of a few items per worker, so that memory does not grow with the number of items. Functions
are defined at the top level of a module, and functions, items and results can be pickled. Workers
of a cluster need the same Augury, and the same paths for files.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, get_args

from augury.core.errors import AuguryError, DefectError, UsageError
from augury.core.progress import Progress, silent

EngineName = Literal["processes", "threads", "serial", "ray", "dask"]
CLUSTERS = ("ray", "dask")
ITEMS_PER_WORKER = 2
"""Items of a wave, per worker. More items keep workers busier where items differ in size; the
results of one wave are in memory together."""
START_WORKERS_S = 1.0
"""Time after which the remaining items go to new processes; starting one takes about half of it."""
CONNECT_S = 20
"""Time within which a cluster has to answer."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Executor:
    """An engine and its size. ``jobs`` limits the items that run at a time; by default all cores of
    this machine or of the cluster are used. ``address`` is that of a cluster; without one, the
    cluster that Ray or Dask itself is configured for is used. A cluster is never started."""

    engine: EngineName = "processes"
    address: str | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise UsageError(
                f"there is no engine {str(self.engine)[:80]!r}",
                remedy=f"choose one of {', '.join(get_args(EngineName))}",
            )
        if self.address is not None and self.engine not in CLUSTERS:
            raise UsageError(
                f"the engine {self.engine} has no address", remedy="add --engine ray or dask"
            )
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"{self.jobs} jobs", remedy="give 1 or more")

    def run(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        work: str = "working",
        describe: Callable[[Item], str] = str,
        progress: Progress = silent,
    ) -> Iterator[Result]:
        """Yields ``function(item)`` for each item, in their order, as the results are consumed.

        The first error in this order is raised: errors of Augury as they are, others as one of
        Augury that names the item by ``describe``. ``work`` names the work for ``progress``."""
        task = _Task(function, describe)
        done = 0
        spent_s = 0.0
        while done < len(items) and self._runs_here(len(items) - done, spent_s):
            begun = time.perf_counter()
            with progress(_state(work, done, len(items))):
                outcome = task(items[done])
            spent_s += time.perf_counter() - begun
            done += 1
            yield outcome.value()
        if done < len(items):
            with self._workers() as workers:
                for first in range(done, len(items), workers.width):
                    wave = items[first : first + workers.width]
                    with progress(_state(work, first, len(items))):
                        outcomes = workers.run(task, wave)
                    while outcomes:
                        # The list must not keep results alive that were consumed.
                        yield outcomes.pop(0).value()

    def _runs_here(self, num_left: int, spent_s: float) -> bool:
        if self.engine in CLUSTERS:
            return False
        if self.engine == "serial" or self.jobs == 1 or num_left == 1:
            return True
        return self.engine == "processes" and spent_s < START_WORKERS_S

    def _workers(self) -> AbstractContextManager[_Workers]:
        if self.engine == "ray":
            return _ray_workers(self.address, self.jobs)
        if self.engine == "dask":
            return _dask_workers(self.address, self.jobs)
        backend = "loky" if self.engine == "processes" else "threading"
        return _joblib_workers(backend, self.jobs)


IN_THIS_PROCESS = Executor(engine="serial")


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """A result or an error, which every engine transports alike."""

    result: Result | None = None
    error: AuguryError | OSError | None = None

    def value(self) -> Result:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


@dataclass(frozen=True)
class _Task(Generic[Item, Result]):
    """The function with its errors turned into outcomes."""

    function: Callable[[Item], Result]
    describe: Callable[[Item], str]

    def __call__(self, item: Item) -> _Outcome[Result]:
        try:
            return _Outcome(result=self.function(item))
        except (AuguryError, OSError) as error:
            return _Outcome(error=error)
        except MemoryError:
            return _Outcome(error=_out_of_memory(self.describe(item)))
        except Exception as error:
            return _Outcome(error=_defect(self.describe(item), error))


@dataclass(frozen=True)
class _Workers:
    """Workers that are running, and the number of items that they get at a time."""

    parallel: Any
    width: int

    def run(self, task: _Task[Item, Result], wave: Sequence[Item]) -> list[_Outcome[Result]]:
        from joblib import delayed  # noqa: PLC0415

        try:
            return list(self.parallel(delayed(task)(item) for item in wave))
        except Exception as error:
            raise _lost_worker([task.describe(item) for item in wave], error) from error


@contextmanager
def _joblib_workers(backend: str, jobs: int | None, **options: Any) -> Iterator[_Workers]:
    import joblib  # noqa: PLC0415

    with joblib.parallel_config(backend=backend, n_jobs=jobs or -1, **options):
        width = ITEMS_PER_WORKER * joblib.effective_n_jobs(jobs or -1)
        # Items are few and each takes long: none waits behind another in a batch.
        with joblib.Parallel(batch_size=1, pre_dispatch="all", max_nbytes=None) as parallel:
            if backend == "loky":
                _start_without_interrupts(parallel)
            yield _Workers(parallel, width)


def _start_without_interrupts(parallel: Any) -> None:
    """Starts processes that ignore interrupts, as this one does meanwhile. A terminal interrupts
    all of its processes; this one then ends the others."""
    from joblib import delayed  # noqa: PLC0415

    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        return  # a handler that Python does not know, or a thread that is not interrupted
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        parallel([delayed(_nothing)()])
    finally:
        signal.signal(signal.SIGINT, before)


def _nothing() -> None:
    """Is run by a worker to start it."""


@contextmanager
def _ray_workers(address: str | None, jobs: int | None) -> Iterator[_Workers]:
    try:
        import ray  # noqa: PLC0415
        from ray.util.joblib import register_ray  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed("ray") from error
    is_connected = ray.is_initialized()
    if not is_connected:
        try:
            _try_to_connect(address)  # Ray itself tries for minutes
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise _no_cluster("Ray", address, error) from error
    try:
        register_ray()
        with _joblib_workers("ray", jobs) as workers:
            yield workers
    finally:
        if not is_connected:
            ray.shutdown()


@contextmanager
def _dask_workers(address: str | None, jobs: int | None) -> Iterator[_Workers]:
    try:
        import dask  # noqa: PLC0415
        import distributed  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed("dask") from error
    address = address or dask.config.get("scheduler-address", None)
    try:
        _try_to_connect(address)
        client = (
            distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
            if address
            else distributed.get_client()
        )
    except Exception as error:
        raise _no_cluster("Dask", address, error) from error
    try:
        with _joblib_workers("dask", jobs, client=client) as workers:
            # Dask uses all cores of its cluster: fewer items at a time limit the jobs.
            yield workers if jobs is None else replace(workers, width=min(jobs, workers.width))
    finally:
        if address:
            client.close()


def _try_to_connect(address: str | None) -> None:
    """Raises an OSError if nothing listens at an address such as ``ray://host:port``."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def _state(work: str, num_done: int, number: int) -> str:
    return f"{work}: {num_done} of {number}" if number > 1 else work


def _not_installed(name: str) -> UsageError:
    return UsageError(
        f"the engine {name} is not installed here", remedy=f"pip install 'augury[{name}]'"
    )


def _no_cluster(name: str, address: str | None, error: Exception) -> AuguryError:
    where = f" at {address}" if address else ""
    return AuguryError(
        f"no {name} cluster answers{where}: {_first_line(error)}",
        remedy="start a cluster, and give its address with --address",
    )


def _out_of_memory(item: str) -> AuguryError:
    return AuguryError(
        f"out of memory at {item}", remedy="use fewer --jobs, or a machine with more memory"
    )


def _lost_worker(items: Sequence[str], error: Exception) -> AuguryError:
    return AuguryError(
        f"a worker ended at one of: {', '.join(items)} ({_first_line(error)})",
        remedy="it may have run out of memory: use fewer --jobs, or --engine serial",
    )


def _defect(item: str, error: Exception) -> DefectError:
    found = DefectError(
        f"unexpected {type(error).__name__} at {item}: {_first_line(error)}",
        remedy="this is a defect of Augury; AUGURY_TRACEBACK=1 shows where",
    )
    found.add_note("".join(traceback.format_exception(error)))  # its own stays in the worker
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
