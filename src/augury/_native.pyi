from typing import Any

from numpy import int32, int64, uint8, uint64
from numpy.typing import NDArray

def simulate(
    work_ns: NDArray[int64],
    resource: NDArray[int32],
    priority: NDArray[int32],
    gang: NDArray[int32],
    num_gangs: int,
    first: NDArray[int32],
    dst: NDArray[int32],
    width: NDArray[int32],
    capacity: NDArray[int64],
    is_fifo: NDArray[uint8],
    victim: NDArray[int32],
    aggressor: NDArray[int32],
    rate: NDArray[int64],
    rated: bool,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
) -> bool: ...
def unsorted_remainder(first: NDArray[int32], dst: NDArray[int32]) -> NDArray[int32]: ...
def longest_path(
    work_ns: NDArray[int64],
    first: NDArray[int32],
    before: NDArray[int32],
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
) -> None: ...
def walk_back(
    work_ns: NDArray[int64],
    gang: NDArray[int32],
    num_gangs: int,
    start_ns: NDArray[int64],
    end_ns: NDArray[int64],
    cause: NDArray[int32],
    last_op: int,
    since_ns: int,
) -> tuple[NDArray[int32], NDArray[int64], NDArray[int64], NDArray[uint8]]: ...
def rank_classes(
    ops: dict[str, NDArray[Any]],
    edges: dict[str, NDArray[Any]],
    carries: dict[str, NDArray[Any]],
    resources: dict[str, NDArray[Any]],
    interference: dict[str, NDArray[Any]],
    buffers: dict[str, NDArray[Any]],
    ranks: dict[str, NDArray[Any]],
    num_gangs: int,
    seed: int,
) -> tuple[NDArray[int32], NDArray[int32], NDArray[uint64], int]: ...
