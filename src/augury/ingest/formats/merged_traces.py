"""Splits files that hold the traces of several ranks into one file per rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from augury.core.errors import FileFormatError, InputError
from augury.core.json_depth import bounded_depth
from augury.ingest.formats.gzip_reader import read_unpacked, unpacked_chunks
from augury.ingest.formats.shown_path import write_part
from augury.ingest.run_files import ReadBudget

MAX_PARTS = 1 << 14
_OVERLAP_BYTES = 4096
"""Part of a chunk that is searched again with the next one."""
_EVENTS_AT_ONCE = 10_000
_RANK = re.compile(r"(?<![a-z])rank[-_ :#]*0*(\d{1,5})(?!\d)", re.IGNORECASE)
_STATED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"rank"\s*:\s*\d')
_LABEL = re.compile(rb'"(?:name|labels|pid)"\s*:\s*"[^"]{0,200}\brank[-_ :#]*\d', re.IGNORECASE)


class _LabelArgs(msgspec.Struct, frozen=True, gc=False):
    name: str | int | None = None
    labels: str | int | None = None


class _Label(msgspec.Struct, frozen=True, gc=False):
    """The fields of an event that tell its process, and name it."""

    ph: str = ""
    name: str | int | None = None
    pid: int | str = 0
    args: msgspec.Raw = msgspec.Raw(b"null")


class _Part(msgspec.Struct, frozen=True):
    rank: int | None = None
    distributedInfo: dict[str, Any] | None = None  # noqa: N815


def rank_in(text: str) -> int | None:
    """Returns the number after ``rank`` in a label or in the name of a file."""
    found = _RANK.search(text)
    return int(found[1]) if found else None


def event_array(path: Path, folder: Path, budget: ReadBudget) -> Path:
    """Returns a trace made of an array of events. The closing bracket may be missing, as programs
    that were killed leave it."""
    data = read_unpacked(path, budget=budget).strip()
    return write_part(folder, str(path), [b'{"traceEvents":', closed_array(data), b"}"])


def closed_array(data: bytes) -> bytes:
    """Adds the closing bracket of an array that lacks it."""
    data = data.rstrip()
    if data.endswith(b"]"):
        return data
    return data.rstrip(b", \r\n\t") + b"]"


def split_parts(path: Path, folder: Path, budget: ReadBudget) -> Iterator[Path]:
    """Yields the traces of a file that is an array of traces, or an object with a trace per
    key."""
    data = read_unpacked(path, budget=budget)
    try:
        content = msgspec.json.decode(
            bounded_depth(data), type=list[msgspec.Raw] | dict[str, msgspec.Raw]
        )
        parts = (
            [(str(number), part) for number, part in enumerate(content)]
            if isinstance(content, list)
            else [(key, part) for key, part in content.items() if b'"traceEvents"' in bytes(part)]
        )
        if len(parts) > MAX_PARTS:
            raise InputError(f"{path} has {len(parts):,} parts", remedy="split it")
        for key, part in parts:
            yield _named_part(path, key, bytes(part), folder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} holds no complete traces ({str(error)[:200]})", remedy="split it by rank"
        ) from error


def _named_part(path: Path, key: str, part: bytes, folder: Path) -> Path:
    """The name of a part has its rank: the stated one, that of its key, or its position."""
    stated = msgspec.json.decode(part, type=_Part)
    info = stated.distributedInfo or {}
    rank = info.get("rank", stated.rank)
    if rank is None:
        rank = rank_in(key)
    if rank is None:
        rank = key
    return write_part(folder, f"{path}/rank{rank}", [part])


def split_labelled(path: Path, folder: Path, budget: ReadBudget) -> list[Path]:
    """Returns one trace per rank if the processes of a trace are labelled with several ranks, else
    the trace itself."""
    if not _may_have_labels(path):
        return [path]
    data = read_unpacked(path)
    try:
        file = msgspec.json.decode(bounded_depth(data), type=dict[str, msgspec.Raw])
        events = msgspec.json.decode(file["traceEvents"], type=list[msgspec.Raw])
        labels = [msgspec.json.decode(event, type=_Label) for event in events]
        rank_of = _labelled_ranks(labels)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return [path]  # the reader of traces explains what is wrong
    if len({*rank_of.values()}) < 2:
        return [path]
    budget.take(len(data))
    of_rank: dict[int, list[msgspec.Raw]] = defaultdict(list)
    for event, label in zip(events, labels, strict=True):
        if label.pid in rank_of:
            of_rank[rank_of[label.pid]].append(event)
    head = {key: value for key, value in file.items() if key != "traceEvents"}
    parts: list[Path] = []
    for rank, own in sorted(of_rank.items()):
        info = {"rank": rank, "world_size": max(of_rank) + 1}
        whole = head | {"distributedInfo": msgspec.Raw(msgspec.json.encode(info))}
        start = msgspec.json.encode(whole)[:-1]
        parts.append(write_part(folder, f"{path}/rank{rank}", _joined(start, own)))
    return parts


def _may_have_labels(path: Path) -> bool:
    has_labels = False
    rest = b""
    for chunk in unpacked_chunks(path):
        text = rest + chunk
        if _STATED_RANK.search(text):
            return False
        has_labels = has_labels or _LABEL.search(text) is not None
        rest = text[-_OVERLAP_BYTES:]
    return has_labels


def _joined(start: bytes, events: list[msgspec.Raw]) -> Iterator[bytes]:
    yield start + b',"traceEvents":['
    for first in range(0, len(events), _EVENTS_AT_ONCE):
        between = b"," if first else b""
        yield between + b",".join(map(bytes, events[first : first + _EVENTS_AT_ONCE]))
    yield b"]}"


def _labelled_ranks(labels: list[_Label]) -> dict[int | str, int]:
    """Returns the rank of each process whose name, label or number states one."""
    found: dict[int | str, int] = {}
    for label in labels:
        texts: list[object] = [label.pid]
        if label.ph == "M" and label.name in ("process_name", "process_labels"):
            args = msgspec.json.decode(label.args, type=_LabelArgs | None)
            texts += [args.name, args.labels] if args is not None else []
        elif label.pid in found:
            continue
        for text in texts:
            rank = rank_in(text) if isinstance(text, str) else None
            if rank is not None:
                found.setdefault(label.pid, rank)
    return found
