"""The profile of the Prophet paper: ResNet-50 in MXNet with one parameter server.

Published: the times of gradient bursts for two batch sizes, and the bytes of each burst. The
tensors follow from the architecture (ResNet-50 v2 as in MXNet's symbols, 157 of them), and add up
to the published bytes of every burst. Assumed:

- all gradients of a burst are released at once, since MXNet runs 15 nodes in bulk;
- the backward of the first burst's layers takes as long as that of the second's; the gap after the
  last burst belongs to backward;
- forward takes half of backward, burst by burst; within a burst convolutions and the dense layer
  share its time by their multiplications;
- three equal workers; each has the given rate in each direction, the server's own link is fast
  enough for all three;
- a message takes 0.3 ms beyond its bytes, during which the link is occupied, and 0.2 ms more to
  arrive;
- the server sums the gradients of three workers at 10 GB/s: 0.3 ns per byte; it also applies the
  updates, which take no time on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from augury.core.plan.problem import Gradient, Network, Problem, Scheme

BURSTS = (
    (144, 156), (131, 143), (118, 130), (104, 117), (91, 103), (78, 90),
    (63, 77), (51, 62), (36, 50), (23, 35), (10, 22), (0, 9),
)  # fmt: skip
"""First and last gradient of each burst, in the order of backward."""
BURST_MEGABYTES = (26.06, 30.44, 16.01, 5.53, 7.88, 7.62, 4.01, 1.39, 2.24, 0.48, 0.50, 0.06)
GAPS_MS = (47, 46, 26, 30, 37, 53, 44, 64, 90, 74, 58, 15)
"""Gap after each burst; 584 ms in total."""
LATER_GAPS_MS = (16, 15, 9, 10, 12, 18, 15, 21, 30, 25, 20, 5)
"""Gaps of a later revision, for batches of 64; 196 ms in total."""

OVERHEAD_NS = 300_000
LATENCY_NS = 200_000
SERVER_NS_PER_BYTE = 0.3
_MS = 1_000_000
_UNITS = (3, 4, 6, 3)
_CLASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One parameter tensor. ``multiplications`` are those of its layer for one image; none for
    biases and normalization."""

    name: str
    num_items: int
    multiplications: int = 0


def tensors() -> list[Tensor]:
    """Returns the tensors in the order in which forward needs them."""
    found = [
        *_norm("bn_data", 3),
        _convolution("conv0", 3, 64, kernel=7, side=112),
        *_norm("bn0", 64),
    ]
    channels, side = 64, 56
    for stage, units in enumerate(_UNITS):
        out = 256 << stage
        for unit in range(units):
            stride = 2 if stage and not unit else 1
            name = f"stage{stage + 1}_unit{unit + 1}"
            found += _unit(name, channels, out, side=side, stride=stride, widens=not unit)
            channels, side = out, side // stride
    found += _norm("bn1", channels)
    weights = channels * _CLASSES
    return [
        *found,
        Tensor(name="fc1_weight", num_items=weights, multiplications=weights),
        Tensor(name="fc1_bias", num_items=_CLASSES),
    ]


def profile(
    gbit_per_s: float, gaps_ms: Sequence[int] = GAPS_MS, *, overhead_ns: int = OVERHEAD_NS
) -> Problem:
    """Returns the Problem at this rate of a worker's link in each direction."""
    layers = tensors()
    gaps_ns = [gap_ms * _MS for gap_ms in gaps_ms]
    made_ns = [gaps_ns[0], *gaps_ns[:-1]]
    """Backward time of each burst."""
    releases_ns = list(accumulate(made_ns))
    gradients: list[Gradient] = []
    begin_ns = 0
    for nth in reversed(range(len(BURSTS))):
        first, last = BURSTS[nth]
        burst = layers[first : last + 1]
        forward_ns = made_ns[nth] // 2
        for tensor, need_ns in zip(burst, _needs_ns(burst, forward_ns), strict=True):
            gradients.append(
                Gradient(
                    name=tensor.name,
                    size_bytes=4 * tensor.num_items,
                    release_ns=releases_ns[nth],
                    need_ns=begin_ns + need_ns,
                )
            )
        begin_ns += forward_ns
    return Problem(
        gradients=tuple(gradients),
        backward_ns=releases_ns[-1] + gaps_ns[-1],
        forward_ns=begin_ns,
        network=Network(
            scheme=Scheme.PARAMETER_SERVER,
            overhead_ns=overhead_ns,
            ns_per_byte=8 / gbit_per_s,
            latency_ns=LATENCY_NS,
            server_ns_per_byte=SERVER_NS_PER_BYTE,
        ),
    )


def _unit(
    name: str, channels: int, out: int, *, side: int, stride: int, widens: bool
) -> Iterator[Tensor]:
    """A bottleneck that normalizes before it convolves; its second convolution has the stride."""
    inner, smaller = out // 4, side // stride
    yield from _norm(f"{name}_bn1", channels)
    yield _convolution(f"{name}_conv1", channels, inner, kernel=1, side=side)
    yield from _norm(f"{name}_bn2", inner)
    yield _convolution(f"{name}_conv2", inner, inner, kernel=3, side=smaller)
    yield from _norm(f"{name}_bn3", inner)
    yield _convolution(f"{name}_conv3", inner, out, kernel=1, side=smaller)
    if widens:
        yield _convolution(f"{name}_sc", channels, out, kernel=1, side=smaller)


def _norm(name: str, channels: int) -> list[Tensor]:
    return [Tensor(name=f"{name}_{part}", num_items=channels) for part in ("gamma", "beta")]


def _convolution(name: str, channels: int, out: int, *, kernel: int, side: int) -> Tensor:
    weights = channels * out * kernel * kernel
    return Tensor(name=f"{name}_weight", num_items=weights, multiplications=weights * side * side)


def _needs_ns(burst: Sequence[Tensor], forward_ns: int) -> Iterator[int]:
    every = sum(tensor.multiplications for tensor in burst)
    before = 0
    for tensor in burst:
        yield forward_ns * before // every
        before += tensor.multiplications
