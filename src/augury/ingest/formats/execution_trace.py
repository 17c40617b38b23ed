"""Reads PyTorch execution traces (Chakra schema): operations with their tensors and parents.

The recorder of PyTorch writes no times. Tools that link an execution trace with a trace of the
profiler add them (``ts`` and ``dur`` in microseconds); such a file is a trace by itself. Beside a
trace of the profiler of the same rank, an execution trace completes the arguments of collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from augury.core.errors import FileFormatError, LimitError
from augury.core.json_depth import bounded_depth
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget

MAX_NODES = 20_000_000
_ROOTS = "[pytorch|profiler|execution_trace|"
"""Start of the names of nodes that stand for the process and its threads."""


class _Attribute(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Values(msgspec.Struct, frozen=True, gc=False):
    shapes: msgspec.Raw = msgspec.Raw(b"[]")
    types: msgspec.Raw = msgspec.Raw(b"[]")


class _Node(msgspec.Struct, frozen=True, gc=False):
    id: int = 0
    name: str = ""
    ctrl_deps: int | None = None
    inputs: msgspec.Raw = msgspec.Raw(b"null")
    attrs: list[_Attribute] = []
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    stream: int | str | None = None
    # Older versions of the schema have attributes as fields, and shapes beside the inputs.
    rf_id: int | None = None
    tid: int | None = None
    seq_id: int | None = None
    fw_tid: int | None = None
    input_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: msgspec.Raw = msgspec.Raw(b"[]")


class _ExecutionTraceFile(msgspec.Struct, frozen=True):
    schema: str
    nodes: list[_Node]
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionNode:
    """One operation."""

    name: str
    parent: int | None
    attributes: dict[str, Any]
    """Attributes as the recorder names them: ``rf_id``, ``tid``, ``seq_id``, ``pg_name``, ..."""
    shapes: msgspec.Raw
    types: msgspec.Raw
    start_us: float | None
    dur_us: float | None
    category: str | None
    stream: int | str | None

    def number(self, attribute: str) -> int | None:
        value = self.attributes.get(attribute)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTrace:
    nodes: list[ExecutionNode]
    """Operations in the order in which they started."""
    rank: int | None

    @property
    def has_times(self) -> bool:
        return any(node.start_us is not None and node.dur_us is not None for node in self.nodes)


def read_execution_trace(path: Path, budget: ReadBudget | None = None) -> ExecutionTrace:
    """Raises an InputError for other formats, and for a trace that was not finished."""
    data = read_unpacked(path, budget=budget)
    try:
        file = msgspec.json.decode(bounded_depth(data), type=_ExecutionTraceFile)
        if len(file.nodes) > MAX_NODES:
            raise LimitError(
                f"{path} has {len(file.nodes):,} nodes; the limit is {MAX_NODES:,}",
                remedy="record fewer steps",
            )
        del data
        ordered = sorted(file.nodes, key=lambda node: node.id)
        nodes = [_decoded(node) for node in ordered if not node.name.startswith(_ROOTS)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is not a complete execution trace ({str(error)[:200]})",
            remedy="give the JSON that ExecutionTraceObserver has written when it is unregistered",
        ) from error
    return ExecutionTrace(nodes=nodes, rank=file.rank)


def _decoded(node: _Node) -> ExecutionNode:
    attributes = {one.name: msgspec.json.decode(one.value) for one in node.attrs}
    for name in ("rf_id", "tid", "seq_id", "fw_tid"):
        value = getattr(node, name)
        if value is not None:
            attributes.setdefault(name, value)
    shapes, types = node.input_shapes, node.input_types
    if bytes(node.inputs).lstrip()[:1] == b"{":
        values = msgspec.json.decode(node.inputs, type=_Values)
        shapes, types = values.shapes, values.types
    return ExecutionNode(
        name=node.name[:2000],
        parent=node.ctrl_deps,
        attributes=attributes,
        shapes=shapes,
        types=types,
        start_us=node.ts,
        dur_us=node.dur,
        category=node.cat,
        stream=node.stream,
    )
