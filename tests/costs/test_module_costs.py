"""Ratios of modules' times under other variants: measured, related, or by a model."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.plan.sections import HalfPrecision
from augury.core.trace.module_timing import ModuleTiming
from augury.costs.module_costs import ModuleCosts, ModuleVariant

COMPILED = ModuleVariant(is_compiled=True)
HALF = ModuleVariant(dtype=HalfPrecision.BFLOAT16)
BOTH = ModuleVariant(is_compiled=True, dtype=HalfPrecision.BFLOAT16)


def timing(module: str, variant: str, forward_ns: int, backward_ns: int = 0) -> ModuleTiming:
    return ModuleTiming(
        modules=[module],
        variant=variant,
        forward_ns=[forward_ns] * 3,
        backward_ns=[backward_ns] * 3 if backward_ns else [],
    )


def test_measured_ratios_are_those_of_medians_over_all_ranks() -> None:
    costs = ModuleCosts(
        timings=(
            ModuleTiming(modules=["a", "b"], forward_ns=[90, 100, 5_000], backward_ns=[200]),
            ModuleTiming(modules=["a"], variant="compiled", forward_ns=[70], backward_ns=[150]),
            ModuleTiming(modules=["a"], variant="compiled", forward_ns=[90], backward_ns=[150]),
        )
    )
    ratio = costs.ratio("a", COMPILED)
    assert (ratio.forward, ratio.backward, ratio.is_measured) == (0.8, 0.75, True)
    assert not costs.ratio("b", COMPILED).is_measured
    assert pickle.loads(pickle.dumps(costs)).ratio("a", COMPILED) == ratio


def test_noisy_measurements_have_larger_errors() -> None:
    def error(samples: list[int]) -> float:
        before = ModuleTiming(modules=["a"], forward_ns=[100] * 5)
        after = ModuleTiming(modules=["a"], variant="compiled", forward_ns=samples)
        return ModuleCosts(timings=(before, after)).ratio("a", COMPILED).error

    assert error([80] * 5) < error([60, 70, 80, 90, 100])


def test_a_module_that_was_not_timed_takes_the_ratio_of_its_relatives() -> None:
    timings = (
        *(timing("net.0", "", 100, 100), timing("net.0", "compiled", 50, 50)),
        *(timing("other", "", 100, 100), timing("other", "compiled", 90, 90)),
    )
    classes = {"net.0": "Block", "net.0.fc": "Linear", "far": "Block", "other": "Linear"}
    costs = ModuleCosts(timings=timings, class_names=classes)
    around, of_class = costs.ratio("net.0.fc", COMPILED), costs.ratio("far", COMPILED)
    assert around.forward == pytest.approx(0.5)
    assert of_class.forward == pytest.approx(0.5)
    assert costs.ratio("net", COMPILED).forward == pytest.approx(0.5)
    unknown = costs.ratio("nothing", COMPILED)
    assert unknown.forward == pytest.approx((0.5 * 0.9) ** 0.5)
    assert costs.ratio("net.0", COMPILED).error < around.error < unknown.error


def test_variants_together_are_measured_together_or_multiplied_with_more_error() -> None:
    apart = (
        *(timing("a", "", 100, 100), timing("a", "compiled", 80, 80)),
        timing("a", "bfloat16", 50, 50),
    )
    product = ModuleCosts(timings=apart).ratio("a", BOTH)
    assert product.forward == pytest.approx(0.4)
    measured = ModuleCosts(timings=(*apart, timing("a", "compiled+bfloat16", 45, 45)))
    assert measured.ratio("a", BOTH).forward == 0.45
    assert measured.ratio("a", BOTH).error < product.error


def test_without_measurements_a_model_states_a_wide_error() -> None:
    costs = ModuleCosts()
    for variant in (COMPILED, HALF, BOTH, ModuleVariant(num_threads=4)):
        ratio = costs.ratio("a", variant)
        assert not ratio.is_measured
        assert ratio.error >= 0.2
    assert costs.ratio("a", ModuleVariant()).error == 0


@given(
    st.integers(1, 64),
    st.integers(0, 64),
    st.floats(0, 64),
    st.one_of(st.none(), st.integers(1, 1_000)),
)
def test_threads_never_gain_more_than_the_cores_that_they_add(
    num_threads: int, recorded: int, cores: float, measured_ns: int | None
) -> None:
    timings: tuple[ModuleTiming, ...] = (timing("a", "", 100, 100),)
    if measured_ns is not None:
        timings += (timing("a", f"threads={num_threads}", measured_ns, measured_ns),)
    costs = ModuleCosts(timings=timings, recorded_threads=recorded, cores_per_rank=cores)
    ratio = costs.ratio("a", ModuleVariant(num_threads=num_threads))
    added = num_threads / max(1, recorded)
    assert ratio.forward >= min(1, 1 / added) - 1e-9
    if cores and num_threads > recorded:
        assert ratio.forward >= max(1, min(recorded, cores)) / max(1, cores) - 1e-9
    if num_threads == recorded:
        assert ratio.forward == 1


def test_trouble_of_a_variant_is_told_and_not_used() -> None:
    failed = ModuleTiming(modules=["a"], variant="compiled", trouble="graph breaks")
    costs = ModuleCosts(timings=(timing("a", "", 100), failed))
    assert costs.trouble("a", "compiled") == "graph breaks"
    assert costs.trouble("a", "bfloat16") is None
    # Nothing could be compiled: as without a compiler.
    assert costs.trouble("b", "compiled") == "graph breaks"
    compiled = (timing("c", "", 100), timing("c", "compiled", 80))
    assert ModuleCosts(timings=(*costs.timings, *compiled)).trouble("b", "compiled") is None
    assert not costs.ratio("a", COMPILED).is_measured


def test_hostile_timings_without_samples_are_passed_over() -> None:
    timings = (
        ModuleTiming(modules=["a"], forward_ns=[0, 0], backward_ns=[0]),
        ModuleTiming(modules=["a"], variant="compiled", forward_ns=[5], backward_ns=[]),
        ModuleTiming(modules=["a"], variant="bfloat16"),
    )
    costs = ModuleCosts(timings=timings)
    assert not costs.ratio("a", COMPILED).is_measured
    assert not costs.ratio("a", HALF).is_measured
