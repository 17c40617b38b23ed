"""Constants that correct the bare equations, and their JSON file; neutral by default."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from augury.core.errors import FileFormatError, InputError
from augury.core.files import new_file, open_regular
from augury.core.json_depth import bounded_depth

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 64 << 10
BARE_SPREAD = 0.5
"""Standard deviation of the logarithm of a time predicted by the bare equations, whose mean
accuracy on the published figure is 64 %."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Bounds of one constant; ``unit`` is the departure from ``neutral`` that the fit counts as
    one."""

    name: str
    neutral: float
    low: float
    high: float
    unit: float
    is_ratio: bool
    about: str


def _ratio(name: str, low: float, high: float, about: str, *, unit: float = 1.0) -> Constant:
    return Constant(
        name=name, neutral=1.0, low=low, high=high, unit=unit, is_ratio=True, about=about
    )


def _amount(name: str, high: float, unit: float, about: str) -> Constant:
    return Constant(
        name=name, neutral=0.0, low=0.0, high=high, unit=unit, is_ratio=False, about=about
    )


CONSTANTS = (
    # Known better than the others: layers are measured, or scaled to measured totals.
    _ratio("compute_ratio", 0.3, 3, "compute in the job over that of its layers", unit=0.02),
    _amount("filter_redundancy", 3, 1, "share of compute that does not shrink with split filters"),
    _amount("channel_redundancy", 3, 1, "the same of split channels"),
    _amount(
        "group_redundancy", 3, 1, "the same of filters split inside groups of data parallelism"
    ),
    _amount("spatial_redundancy", 3, 1, "the same of split images"),
    _amount("piece_s", 2e-4, 5e-5, "launch overhead per layer and gathered piece"),
    _ratio("node_contention", 0.05, 20, "time per byte of layer-wise exchange inside a node"),
    _ratio("filter_contention", 0.05, 20, "the same of split filters across nodes"),
    _ratio("channel_contention", 0.05, 20, "the same of split channels across nodes"),
    _ratio("gradient_contention", 0.05, 20, "the same of the exchange of gradients"),
    _amount("staging_s_per_byte", 1e-7, 1e-9, "of halos: packed, and passed through the host"),
    _amount("crossing_s", 0.1, 2e-2, "waiting per tier of switches crossed, beyond the first"),
    _amount("group_messages", 2, 1, "share of layers exchanged on their own by data+filter"),
    _amount("spatial_messages", 2, 1, "the same by data+spatial"),
    _ratio("memory_reuse", 0.05, 2, "activations held over activations saved"),
)
"""``memory_reuse`` is fitted on measured memory only."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    compute_ratio: float = 1.0
    filter_redundancy: float = 0.0
    channel_redundancy: float = 0.0
    group_redundancy: float = 0.0
    spatial_redundancy: float = 0.0
    piece_s: float = 0.0
    node_contention: float = 1.0
    filter_contention: float = 1.0
    channel_contention: float = 1.0
    gradient_contention: float = 1.0
    staging_s_per_byte: float = 0.0
    crossing_s: float = 0.0
    group_messages: float = 0.0
    spatial_messages: float = 0.0
    memory_reuse: float = 1.0
    spread: dict[str, float] = field(default_factory=dict)
    """Standard deviation of the logarithm of a predicted time, by strategy."""
    unseen_spread: float = 0.0
    """Standard deviation for a strategy that was never fitted."""
    beyond_spread: float = 0.0
    """Standard deviation per doubling of the devices beyond ``max_devices``."""
    max_devices: dict[str, float] = field(default_factory=dict)
    """Largest number of devices that was fitted, by strategy."""
    layer_shares: dict[str, float] = field(default_factory=dict)
    """Largest share of compute in a fitted model, by kind of layer."""
    device: str = ""
    """Device of the cluster that the constants were fitted on."""
    cluster: str = ""
    """Cluster that the constants were fitted on."""
    fitted_on: str = ""
    """Description of the measurements; empty for the bare equations."""

    def __post_init__(self) -> None:
        for constant in CONSTANTS:
            value = getattr(self, constant.name)
            if not constant.low <= value <= constant.high:
                raise InputError(
                    f"{constant.name} is {value}",
                    remedy=f"make it {constant.low:g} to {constant.high:g}",
                )
        spreads = (*self.spread.values(), self.unseen_spread, self.beyond_spread)
        if not all(0 <= value <= 10 for value in spreads):
            raise InputError("a spread is not between 0 and 10", remedy="fit the constants again")

    def spread_of(self, strategy: str) -> float:
        """Spread of a strategy; one that was never fitted is at least as uncertain as the worst."""
        if not self.spread:
            return BARE_SPREAD
        return self.spread.get(strategy, max(self.unseen_spread, *self.spread.values()))


BARE = Constants()


class _CorrectionsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    schema_version: int
    constants: dict[str, float | str | dict[str, float]]


def save_constants(constants: Constants, path: Path, *, force: bool = False) -> None:
    document = {
        "kind": "augury-oracle-constants",
        "schema_version": SCHEMA_VERSION,
        "constants": constants,
    }
    with new_file(path, force=force) as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def load_constants(path: Path) -> Constants:
    remedy = "fit them again with `augury validate oracle --fit ... --out FILE.json`"
    try:
        with open_regular(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error
    try:
        if len(content) > MAX_FILE_BYTES:
            raise FileFormatError("the file is too large for constants")
        found = msgspec.json.decode(bounded_depth(content), type=_CorrectionsFile)
        unknown = sorted(found.constants.keys() - Constants.__dataclass_fields__.keys())
        if found.kind != "augury-oracle-constants" or found.schema_version != SCHEMA_VERSION:
            raise FileFormatError(f"it is {found.kind[:80]!r} of schema {found.schema_version}")
        if unknown:
            raise FileFormatError(f"unknown constant {unknown[0][:80]!r}")
        return msgspec.convert(found.constants, Constants)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError) as error:
        raise FileFormatError(f"{path} does not hold constants: {error}", remedy=remedy) from error
