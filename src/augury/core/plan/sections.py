"""The sections of a Plan besides communication: each one changes the training in one way.

Paths of modules are those of recorded runs (``RankRecord.modules``). A section covers a module with
everything below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

MAX_MODULES = 1 << 16
MAX_WORKERS = 1 << 10
MAX_THREADS = 1 << 12
MAX_MICRO_BATCHES = 1 << 16


class HalfPrecision(StrEnum):
    """Number formats of two bytes."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSection:
    """Modules that are compiled, each as a whole: fewer, longer operations, after which all
    gradients of the module are released together."""

    modules: tuple[str, ...]

    def errors(self) -> Iterator[str]:
        yield from _module_errors(self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeSection:
    """Modules whose activations are dropped after forward and computed again in backward."""

    modules: tuple[str, ...]

    def errors(self) -> Iterator[str]:
        yield from _module_errors(self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSection:
    """Forward and backward under autocast."""

    dtype: HalfPrecision = HalfPrecision.BFLOAT16

    def errors(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionSection:
    """Gradients travel in half precision."""

    dtype: HalfPrecision = HalfPrecision.BFLOAT16

    def errors(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSection:
    """Processes that load batches ahead of the training."""

    num_workers: int
    prefetch_factor: int = 2
    """Batches that each of them loads ahead."""

    def errors(self) -> Iterator[str]:
        yield from _range_error("num_workers", self.num_workers, MAX_WORKERS)
        yield from _range_error("prefetch_factor", self.prefetch_factor, MAX_WORKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsSection:
    """Threads of each rank that share the work of one operation."""

    num_threads: int

    def errors(self) -> Iterator[str]:
        yield from _range_error("num_threads", self.num_threads, MAX_THREADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulateSection:
    """Micro-batches per exchange of gradients. Advice: the user's loop has to change."""

    num_micro_batches: int

    def errors(self) -> Iterator[str]:
        yield from _range_error("num_micro_batches", self.num_micro_batches, MAX_MICRO_BATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSection:
    """Stage of ZeRO: 1 shards the optimizer state, 2 gradients too, 3 parameters too. Advice: the
    user's program has to change."""

    stage: int

    def errors(self) -> Iterator[str]:
        yield from _range_error("stage", self.stage, 3)


def _module_errors(modules: tuple[str, ...]) -> Iterator[str]:
    if not 1 <= len(modules) <= MAX_MODULES:
        yield f"{len(modules)} modules, 1 to {MAX_MODULES} are allowed"
    elif len(set(modules)) < len(modules):
        yield "it names a module twice"
    elif (nested := _nested(modules)) is not None:
        yield f"module {nested[1]!r:.80} lies within {nested[0]!r:.80}"


def _nested(modules: tuple[str, ...]) -> tuple[str, str] | None:
    """Returns a module and one below it, if any."""
    known = set(modules)
    for module in modules:
        path = module
        while path:
            path = path.rpartition(".")[0]
            if path in known and path != module:
                return path, module
    return None


def _range_error(name: str, value: int, most: int) -> Iterator[str]:
    if not 1 <= value <= most:
        yield f"{name} is {value}, 1 to {most} are allowed"
