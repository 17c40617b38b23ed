from typing import Any

from numpy import float64, int32, int64, uint8, uint64
from numpy.typing import NDArray

class NativeGraph:
    def __init__(
        self, columns: dict[str, NDArray[Any]], num_gangs: int, num_windows: int = 1
    ) -> None: ...

class Workspace: ...
class Blueprint: ...
class Routes: ...
class Checkpoints: ...

class FixedOrder:
    def sweep(self, work_ns: NDArray[int64], latest_ns: NDArray[int64]) -> None: ...

class NativeProblem:
    def __init__(
        self,
        release_ns: NDArray[int64],
        update_ns: NDArray[int64],
        size_bytes: NDArray[int64],
        segment_ns: NDArray[int64],
        begin_ns: int,
        overhead_ns: float,
        ns_per_byte: float,
        server_ns_per_byte: float,
        latency_ns: int,
    ) -> None: ...
    def line_step_ns(
        self,
        gradient: NDArray[int32],
        end_bytes: NDArray[int64],
        cuts: NDArray[int64],
        back: NDArray[int64] | None,
    ) -> int: ...
    def evaluate(
        self,
        link: NDArray[uint8],
        is_last: NDArray[uint8],
        after: NDArray[int32],
        lag_ns: NDArray[int64],
        not_before_ns: NDArray[int64],
        hold_ns: NDArray[int64],
        size_bytes: NDArray[int64],
        first: NDArray[int32],
        gradient: NDArray[int32],
        slice_bytes: NDArray[int64],
        latency_ns: int,
        window_bytes: int,
        has_barrier: bool,
        start_ns: NDArray[int64] | None = None,
        arrive_ns: NDArray[int64] | None = None,
        arrived_ns: NDArray[int64] | None = None,
    ) -> tuple[int, int]: ...

def draw_blueprint(graph: NativeGraph) -> Blueprint: ...
def find_routes(graph: NativeGraph) -> Routes: ...
def simulate_rated(
    graph: NativeGraph,
    work_ns: NDArray[int64],
    routes: Routes,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
) -> int: ...
def simulate_with_checkpoints(
    graph: NativeGraph,
    work_ns: NDArray[int64],
    routes: Routes,
    count: int,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
) -> Checkpoints: ...
def resume(
    graph: NativeGraph,
    work_ns: NDArray[int64],
    routes: Routes,
    checkpoints: Checkpoints,
    before_ns: int,
    base_start_ns: NDArray[int64],
    base_end_ns: NDArray[int64],
    base_cause: NDArray[int32],
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
) -> int: ...
def simulate(
    graph: NativeGraph,
    work_ns: NDArray[int64],
    blueprint: Blueprint,
    workspace: Workspace,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
) -> bool: ...
def fix_order(graph: NativeGraph, order: NDArray[int32], end_ns: NDArray[int64]) -> FixedOrder: ...
def rank_classes(
    graph: NativeGraph, seed: int
) -> tuple[NDArray[int32], NDArray[int32], NDArray[uint64], int]: ...
def walk_back(
    graph: NativeGraph,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
    last_op: int,
    since_ns: int,
) -> tuple[NDArray[int32], NDArray[int64], NDArray[int64], NDArray[uint8]]: ...
def peak_memory(
    graph: NativeGraph, start_ns: NDArray[int64], end_ns: NDArray[int64]
) -> tuple[
    NDArray[int32],
    NDArray[int64],
    NDArray[int64],
    NDArray[int32],
    NDArray[int32],
    NDArray[int32],
    NDArray[int64],
]: ...
def longest_path(
    work_ns: NDArray[int64],
    first: NDArray[int32],
    before: NDArray[int32],
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
) -> None: ...
def unsorted_remainder(first: NDArray[int32], dst: NDArray[int32]) -> NDArray[int32]: ...
def least_step(
    head_ns: NDArray[float64],
    tail_ns: NDArray[float64],
    work_ns: NDArray[float64],
    overhead_ns: float,
    is_pipelined: bool,
    at_least_ns: float,
) -> float: ...

class KinetoScan:
    num_events: int
    def __init__(
        self, skipped: list[str], frame: tuple[str, str], kept: list[str], seed: int
    ) -> None: ...
    def feed(self, data: bytes) -> bool: ...
    def finish(self) -> bool: ...
    def take(self) -> dict[str, Any]: ...

def enclosing(
    stream: NDArray[int32],
    start_ns: NDArray[int64],
    dur_ns: NDArray[int64],
    parent: NDArray[int32],
) -> None: ...
def inherit(parent: NDArray[int32], inherits: NDArray[uint8], value: NDArray[int32]) -> None: ...
def inherit_phases(
    parent: NDArray[int32], covers: NDArray[uint8], unstated: int, phase: NDArray[uint8]
) -> None: ...
