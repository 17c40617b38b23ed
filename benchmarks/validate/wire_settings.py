"""The cases of the wire suite: changes of all links or of one host's link."""

from __future__ import annotations

from benchmarks.testbed.bed import Way
from benchmarks.validate.settings import Change, Setting


def all_links(factor: float) -> Change:
    words = ("--bandwidth", f"{factor:g}x")
    return Change(name=f"bandwidth-{factor:g}x", whatif=words, coarse=words, rate=factor)


def one_link(host: int, factor: float, way: Way = "both") -> Change:
    """A change of one host's link; a model without single links is asked as if all links changed
    alike."""
    of_host = str(host) if way == "both" else f"{host}.{way}"
    return Change(
        name=f"link-{of_host}-{factor:g}x",
        whatif=("--link-bandwidth", f"{of_host}:{factor:g}x"),
        coarse=("--bandwidth", f"{factor:g}x"),
        rate=factor,
        link=(host, way),
    )


def _pair(model: str, cap: str, *changes: Change, mbit: int = 1000) -> Setting:
    link = "1gbit" if mbit == 1000 else f"{mbit}mbit"
    return Setting(
        name=f"{model}-{link}", model=model, mbit=mbit, cap=cap, changes=changes, wire=True
    )


def _four(model: str, *changes: Change) -> Setting:
    """A setting with quotas: ranks that share a core then do not slow each other down."""
    return Setting(
        name=f"{model}-4ranks",
        model=model,
        mbit=1000,
        cap="5",
        num_ranks=4,
        quota=0.45,
        changes=changes,
        wire=True,
    )


WIRE_SETTINGS: tuple[Setting, ...] = (
    _pair("last", "25", all_links(0.5), one_link(1, 0.5), one_link(0, 0.5)),
    _pair("transformer", "5", all_links(0.5), one_link(1, 0.5), one_link(1, 0.5, "out")),
    _pair("conv", "25", all_links(0.5), one_link(1, 0.5)),
    # The bed's links go up to 1 Gbit/s: only slower ones can be doubled.
    _pair("last", "25", all_links(2), one_link(1, 2), mbit=200),
    _four("last", all_links(0.5), one_link(1, 0.5)),
    _four("transformer", all_links(0.5), one_link(1, 0.5)),
)
