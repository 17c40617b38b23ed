"""Combines execution traces with traces of the profiler, or makes a profiler's trace of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from augury.core.errors import FileFormatError, InputError
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.execution_trace import ExecutionNode, ExecutionTrace
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.formats.shown_path import write_part
from augury.ingest.run_files import ReadBudget

_ARGUMENTS = {
    "collective_name": "Collective name",
    "in_msg_nelems": "In msg nelems",
    "out_msg_nelems": "Out msg nelems",
    "pg_size": "Group size",
    "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description",
    "dtype": "dtype",
}
"""Attributes of an execution trace, and the arguments that a profiler's trace has for them."""
_MAX_GROUP = 1 << 14
_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver"}


class _LinkedArgs(msgspec.Struct, frozen=True, gc=False):
    external: int | None = msgspec.field(name="External id", default=None)
    record: int | None = msgspec.field(name="Record function id", default=None)


class _LinkedEvent(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    cat: str | None = None
    ph: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


def trace_of(execution: ExecutionTrace, path: Path, folder: Path) -> Path:
    """Returns a profiler's trace made of an execution trace with times. Raises an InputError if
    it has none."""
    if not execution.has_times:
        raise InputError(
            f"{path} is an execution trace without times: PyTorch records which operations ran,"
            " and not when",
            remedy="import it together with the trace of PyTorch's profiler of the same rank",
        )
    events = [_event(node) for node in execution.nodes if node.start_us is not None]
    content: dict[str, Any] = {"traceEvents": events}
    if execution.rank is not None:
        content["distributedInfo"] = {"rank": execution.rank}
    return write_part(folder, str(path), [msgspec.json.encode(content)])


def _event(node: ExecutionNode) -> dict[str, Any]:
    on_device = node.stream is not None
    category = node.category or ("kernel" if on_device else "cpu_op")
    return {
        "ph": "X",
        "cat": category if category in _CATEGORIES else "cpu_op",
        "name": node.name,
        "pid": 0,
        "tid": f"stream {node.stream}" if on_device else (node.number("tid") or 0),
        "ts": node.start_us,
        "dur": node.dur_us or 0,
        "args": arguments_of(node)
        | {
            "External id": node.number("rf_id") or 0,
            "Sequence number": node.number("seq_id"),
            "Fwd thread id": node.number("fw_tid") or 0,
        },
    }


def arguments_of(node: ExecutionNode) -> dict[str, Any]:
    """Returns the arguments that describe the tensors and the collective of an operation."""
    found: dict[str, Any] = {"Input Dims": node.shapes, "Input type": node.types}
    for attribute, argument in _ARGUMENTS.items():
        if attribute in node.attributes:
            found[argument] = node.attributes[attribute]
    first, stride, size = (
        node.number(name) or 0 for name in ("global_rank_start", "global_rank_stride", "pg_size")
    )
    if 0 <= first < _MAX_GROUP and 0 < stride < _MAX_GROUP and 0 < size <= _MAX_GROUP:
        found["Process Group Ranks"] = [first + stride * i for i in range(size)]
    return found


def completed(
    path: Path, execution: ExecutionTrace, folder: Path, ledger: Ledger, budget: ReadBudget
) -> Path:
    """Returns the profiler's trace with the arguments of its collectives completed from the
    execution trace of the same rank. Operations are the same if the external id of one is the
    recorded function of the other and their names agree."""
    communicates = {
        node.number("rf_id"): node
        for node in execution.nodes
        if "pg_name" in node.attributes or "collective_name" in node.attributes
    }
    if not communicates:
        return path
    data = read_unpacked(path, budget=budget)
    try:
        file = msgspec.json.decode(bounded_depth(data), type=dict[str, msgspec.Raw])
        events = msgspec.json.decode(file["traceEvents"], type=list[msgspec.Raw])
        linked = 0
        for at, raw in enumerate(events):
            event = msgspec.json.decode(raw, type=_LinkedEvent)
            if event.ph != "X" or event.cat not in ("cpu_op", "user_annotation"):
                continue
            ids = msgspec.json.decode(event.args, type=_LinkedArgs)
            node = communicates.get(ids.record) or communicates.get(ids.external)
            if node is None or node.name != event.name:
                continue
            whole = msgspec.json.decode(raw, type=dict[str, Any])
            whole["args"] = {**arguments_of(node), **(whole.get("args") or {})}
            events[at] = msgspec.Raw(msgspec.json.encode(whole))
            linked += 1
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise FileFormatError(
            f"{path} is not a trace of torch's profiler ({str(error)[:200]})",
            remedy="give the complete JSON that export_chrome_trace writes",
        ) from error
    _note(ledger, linked, len(communicates), path)
    if not linked:
        return path
    file["traceEvents"] = msgspec.Raw(msgspec.json.encode(events))
    return write_part(folder, str(path), [msgspec.json.encode(file)])


def _note(ledger: Ledger, linked: int, number: int, path: Path) -> None:
    ledger.note(
        "execution-trace",
        f"an execution trace was used: {linked} of its {number} collectives were found in the"
        " trace of the profiler",
        severity=Severity.INFO if linked == number else Severity.WARNING,
        example=str(path),
    )
