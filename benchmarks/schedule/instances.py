"""Random scheduling problems from a documented generator: instance n is always the same.

- Tensors: one of six models, with four bytes per parameter.
- Compute: 20 ms to 2 s for forward and backward, log-uniform. A layer's share is its arithmetic
  (plus launch overhead: a fifth of the total time, spread evenly), times a log-normal factor of
  sigma 0.3; backward takes twice as long as forward.
- Gradients are released when their layer's backward ends (one in five instances), or in bursts when
  the backward of a whole group ends: groups of 5 to 20 layers (bulk execution), 2 to 6 graphs
  (torch.compile), 1 to 25 MB (buckets), or 6 to 30 blocks of equal time (units of FSDP).
  Gradients of a burst are up to 20 us apart.
- Network: all-reduce or parameter server, with equal probability; communication to compute 0.2 to
  4, overhead of a message 10 us to 1 ms, latency 1 us to 1 ms, each log-uniform; the server takes
  up to a fifth of the transfer time.
- Updates take up to 8 % of compute, by bytes; the gap between backward and forward is up to 3 %.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from augury.core.plan.problem import Gradient, Network, Problem, Scheme
from benchmarks.schedule.models import BYTES, MODELS, Layer

_LAYERS = {name: tuple(layers()) for name, layers in MODELS.items()}
_LAUNCHING = 0.2
_FORWARD = 1 / 3
_Random = np.random.Generator
_Floats = NDArray[np.float64]


class _Walk(NamedTuple):
    """Times of backward, layer by layer."""

    random: _Random
    sizes_bytes: list[int]
    ends_ns: _Floats


def instance(number: int, *, seed: int = 0) -> Problem:
    random = np.random.default_rng([seed, number])
    layers = _LAYERS[str(random.choice(sorted(_LAYERS)))]
    compute_ns = _log_uniform(random, 20e6, 2e9)
    forward_ns = _shares(random, layers) * compute_ns * _FORWARD
    backward_ns = _shares(random, layers) * compute_ns * (1 - _FORWARD)
    need_ns = [0.0, *accumulate(forward_ns)]
    come_ns = _releases(random, layers, backward_ns[::-1])[::-1]
    size_bytes = BYTES * sum(sum(layer.tensors) for layer in layers)
    update_ns_per_byte = random.uniform(0, 0.08) * compute_ns / size_bytes
    return Problem(
        gradients=tuple(
            Gradient(
                name=f"{layer.name}.{nth}",
                size_bytes=BYTES * parameters,
                release_ns=int(release_ns),
                need_ns=int(layer_need_ns),
                update_ns=int(update_ns_per_byte * BYTES * parameters),
            )
            for layer, layer_need_ns, releases_ns in zip(layers, need_ns, come_ns, strict=False)
            for nth, (parameters, release_ns) in enumerate(
                zip(layer.tensors, releases_ns, strict=True)
            )
        ),
        backward_ns=int(max(max(releases_ns) for releases_ns in come_ns)) + 1,
        between_ns=int(random.uniform(0, 0.03) * compute_ns),
        forward_ns=int(need_ns[-1]),
        network=_network(random, compute_ns, size_bytes),
    )


def _network(random: _Random, compute_ns: float, size_bytes: int) -> Network:
    serves = bool(random.random() < 0.5)
    ns_per_byte = _log_uniform(random, 0.2, 4) * compute_ns / size_bytes
    return Network(
        scheme=Scheme.PARAMETER_SERVER if serves else Scheme.ALL_REDUCE,
        overhead_ns=int(_log_uniform(random, 10e3, 1e6)),
        ns_per_byte=ns_per_byte,
        latency_ns=int(_log_uniform(random, 1e3, 1e6)),
        server_ns_per_byte=random.uniform(0, 0.2) * ns_per_byte if serves else 0.0,
    )


def _shares(random: _Random, layers: tuple[Layer, ...]) -> _Floats:
    work = np.array([layer.work for layer in layers])
    work = (1 - _LAUNCHING) * work / work.sum() + _LAUNCHING / len(layers)
    work = work * random.lognormal(0, 0.3, len(layers))
    shares: _Floats = work / work.sum()
    return shares


def _releases(
    random: _Random, layers: tuple[Layer, ...], backward_ns: _Floats
) -> list[tuple[float, ...]]:
    """Returns releases by layer in backward order, the last layer first."""
    ends_ns = np.cumsum(backward_ns)
    sizes_bytes = [BYTES * sum(layer.tensors) for layer in reversed(layers)]
    group = _BURSTS[int(random.integers(len(_BURSTS)))](_Walk(random, sizes_bytes, ends_ns))
    last_of_group = {number: nth for nth, number in enumerate(group)}
    apart_ns = random.uniform(0, 20e3)
    come_ns, num_before = [], 0
    for nth, layer in enumerate(reversed(layers)):
        if nth and group[nth] != group[nth - 1]:
            num_before = 0
        at_ns = ends_ns[last_of_group[group[nth]]]
        come_ns.append(
            tuple(at_ns + apart_ns * (num_before + i) for i in range(len(layer.tensors)))
        )
        num_before += len(layer.tensors)
    return come_ns


def _one_by_one(walk: _Walk) -> list[int]:
    return list(range(len(walk.sizes_bytes)))


def _bulk(walk: _Walk) -> list[int]:
    size = int(walk.random.integers(5, 21))
    return [nth // size for nth in range(len(walk.sizes_bytes))]


def _compiled(walk: _Walk) -> list[int]:
    num_cuts = min(int(walk.random.integers(1, 6)), len(walk.sizes_bytes) - 1)
    cuts = walk.random.choice(np.arange(1, len(walk.sizes_bytes)), num_cuts, replace=False)
    return [int((cuts <= nth).sum()) for nth in range(len(walk.sizes_bytes))]


def _buckets(walk: _Walk) -> list[int]:
    cap_bytes = _log_uniform(walk.random, 1e6, 25e6)
    groups, held_bytes = [0], 0
    for size_bytes in walk.sizes_bytes:
        held_bytes += size_bytes
        is_full = held_bytes >= cap_bytes
        groups.append(groups[-1] + is_full)
        held_bytes = 0 if is_full else held_bytes
    return groups[:-1]


def _units(walk: _Walk) -> list[int]:
    num_units = int(walk.random.integers(6, 31))
    return [int(end_ns / walk.ends_ns[-1] * num_units * 0.999999) for end_ns in walk.ends_ns]


_BURSTS: tuple[Callable[[_Walk], list[int]], ...] = (
    _one_by_one,
    _bulk,
    _compiled,
    _buckets,
    _units,
)


def _log_uniform(random: _Random, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))
