"""The cases of the torch suite: recorded jobs and the changes that are predicted from them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.testbed.bed import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class BedFault:
    """A fault of the recorded configuration that the test bed injects on one host."""

    host: int = 1
    slow: float = 1.0
    """The slowdown factor of the host's processor."""
    rate: float = 1.0
    """The factor by which the rate of the host's link outwards changes."""
    flow_mbit: int | None = None
    """Rate of other traffic from this host to host 0."""
    lossy: bool = False
    """Whether the queue of the host's link is too short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the recorded configuration, for the training and for ``whatif``."""

    name: str
    whatif: tuple[str, ...]
    block: str = "base"
    """The training script's part of the change."""
    rate: float = 1.0
    """The factor by which the rate of the links changes."""
    link: tuple[int, Way] | None = None
    """The host and direction whose link changes its rate; None: all links."""
    coarse: tuple[str, ...] = ()
    """The closest question for a model without single links."""
    slow: tuple[int, float] | None = None
    """A host and the slowdown factor of its processor."""
    measured_by: str | None = None
    """The setting that measures this change, where a running job cannot make it."""
    is_healed: bool = False
    """Whether the fault of the bed is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A job that is recorded, then continues in changed configurations."""

    name: str
    model: str
    mbit: int | None
    """Rate of the links in Mbit/s; None: loopback."""
    cap: str = "25"
    num_ranks: int = 2
    quota: float | None = None
    """Share of a core, for every host."""
    options: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    wire: bool = False
    """Whether the wire is recorded."""
    ordinary: bool = False
    """Whether hosts are set up as Linux distributions do it."""
    fault: BedFault | None = None
    num_rounds: int | None = None
    """Number of rounds, where it is not the usual one."""

    @property
    def rounds(self) -> int:
        """Number of rounds: even, for two interleaved halves; more where steps are short and
        unsteady."""
        if self.num_rounds is not None:
            return self.num_rounds
        return 32 if self.mbit is None else 8 if self.mbit >= 1000 else 4


def bucket(caps: str) -> Change:
    name = caps if "," not in caps else "list"
    return Change(name=f"bucket-{name}", whatif=("--bucket-mb", caps), block=f"cap={caps}")


def bandwidth(factor: float) -> Change:
    return Change(
        name=f"bandwidth-{factor:g}x", whatif=("--bandwidth", f"{factor:g}x"), rate=factor
    )


def slower(host: int, factor: float) -> Change:
    return Change(
        name=f"slow-{host}:{factor:g}",
        whatif=("--compute-scale", f"{host}:{factor:g}"),
        slow=(host, factor),
    )


CAPS = {
    "last": ("1", "5", "25"),
    "first": ("1", "5", "1,4,25"),
    "conv": ("1", "5", "25", "1,4,25"),
    "transformer": ("1", "5", "25", "1,4,25"),
}
"""Bucket sizes by model that give different buckets: others would count the same change twice."""
BASE_CAP = {"last": "25", "first": "5", "conv": "25", "transformer": "5"}
LINKS = {"loopback": None, "1gbit": 1000, "200mbit": 200}


def _plain(model: str, link: str) -> Setting:
    changes = [bucket(caps) for caps in CAPS[model] if caps != BASE_CAP[model]]
    if link == "1gbit":
        changes += [bandwidth(0.5), bandwidth(0.2)]
    if link == "1gbit" and model in ("conv", "transformer"):
        changes.append(slower(1, 1.5))
    if link == "200mbit":
        # Slow settings: one of each, and half the bandwidth only where a step stays below a second.
        changes = changes[:2] if model in ("last", "conv") else changes[-1:]
    return Setting(
        name=f"{model}-{link}",
        model=model,
        mbit=LINKS[link],
        cap=BASE_CAP[model],
        changes=tuple(changes),
    )


def _shared_cores(model: str, num_ranks: int, changes: tuple[Change, ...] = ()) -> Setting:
    """A setting with quotas: ranks that share a core then do not slow each other down."""
    return Setting(
        name=f"{model}-{num_ranks}ranks",
        model=model,
        mbit=1000,
        cap="5",
        num_ranks=num_ranks,
        quota=0.45,
        changes=changes,
    )


def _twice(model: str) -> Change:
    return Change(name="ranks-4", whatif=("--ranks", "4"), measured_by=f"{model}-4ranks")


SETTINGS: tuple[Setting, ...] = (
    *(_plain(model, link) for link in LINKS for model in BASE_CAP),
    Setting(name="transformer-sharded", model="transformer", mbit=1000, options=("--sharded",)),
    Setting(
        name="conv-accumulated", model="conv", mbit=1000, cap="5", options=("--accumulate", "2")
    ),
    Setting(
        name="transformer-compiled",
        model="transformer",
        mbit=1000,
        cap="5",
        options=("--compile",),
    ),
    *(_shared_cores(model, 2, (_twice(model),)) for model in ("last", "transformer")),
    *(_shared_cores(model, 4) for model in ("last", "transformer")),
)
