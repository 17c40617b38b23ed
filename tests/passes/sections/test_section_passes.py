"""Passes of sections change durations and memory of a graph, never its structure."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.core.enums import MemoryKind, OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import verify
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import (
    AccumulateSection,
    CompressionSection,
    FusionSection,
    HalfPrecision,
    LoaderSection,
    PrecisionSection,
    RecomputeSection,
    ShardingSection,
    ThreadsSection,
)
from augury.core.trace.module_timing import ModuleTiming
from augury.passes.protocol import Scene, compose
from augury.passes.sections.registry import SECTION_PASSES
from augury.predict.opened_run import open_source
from augury.replay.run import replay
from augury.replay.session import ReplaySession
from tests.passes.applied import check_change
from tests.passes.sections.trained_graph import (
    ADD_NS,
    BACKWARD_NS,
    FORWARD_NS,
    LOSS_NS,
    MS,
    PARAMETER_BYTES,
    SAVED_BYTES,
    TIMED,
    Trained,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "runs"
FUSED = FusionSection(modules=("block.0",))
SECTIONS: dict[PlanSection, Any] = {
    PlanSection.FUSION: FUSED,
    PlanSection.RECOMPUTE: RecomputeSection(modules=("block.0", "block.1.a")),
    PlanSection.PRECISION: PrecisionSection(),
    PlanSection.COMPRESSION: CompressionSection(dtype=HalfPrecision.FLOAT16),
    PlanSection.LOADER: LoaderSection(num_workers=2),
    PlanSection.THREADS: ThreadsSection(num_threads=2),
    PlanSection.ACCUMULATE: AccumulateSection(num_micro_batches=4),
    PlanSection.SHARDING: ShardingSection(stage=3),
}


def structure(graph: Graph) -> tuple[Any, ...]:
    columns = {name: values for name, values in graph.ops.columns() if name != "work_ns"}
    return (
        {name: values.tolist() for name, values in columns.items()},
        graph.edges,
        graph.carries,
        graph.resources,
        graph.interference,
        graph.gradients,
        graph.strings,
    )


def done(scene: Scene, *names: PlanSection, **sections: Any) -> Scene:
    steps = [(SECTION_PASSES[name], sections.get(name.value, SECTIONS.get(name))) for name in names]
    return compose(scene, steps).scene


def work_ns(scene: Scene, kind: OpKind, layer: str = "", rank: int = 0, step: int = 0) -> int:
    graph = scene.graph
    own = (graph.ops.kind == kind) & (graph.ops.rank == rank) & (graph.ops.step == step)
    if layer:
        inside = [
            number
            for number, name in enumerate(graph.strings)
            if name == layer or name.startswith(f"{layer}.")
        ]
        own &= np.isin(graph.ops.layer, inside)
    return int(graph.ops.work_ns[own].sum())


def test_every_section_but_communication_has_a_pass() -> None:
    assert set(SECTION_PASSES) == set(PlanSection) - {PlanSection.COMMUNICATION}
    assert all(one.plan_section == name for name, one in SECTION_PASSES.items())
    assert SECTION_PASSES[PlanSection.ACCUMULATE].advice
    assert SECTION_PASSES[PlanSection.SHARDING].advice


@pytest.mark.parametrize("name", list(SECTION_PASSES))
@pytest.mark.parametrize("trained", [Trained(), Trained(has_layers_in_forward=True, timings=TIMED)])
def test_the_structure_stays(name: PlanSection, trained: Trained) -> None:
    scene = replace(trained, loading_ns=MS).scene()
    one, section = SECTION_PASSES[name], SECTIONS[name]
    assert one.applies(scene) == []
    found = one.apply(scene, section)
    check_change(scene, found)
    verify(found.scene.graph)
    assert structure(found.scene.graph) == structure(scene.graph)
    assert found.scene.sections == {name: section}
    assert pickle.loads(pickle.dumps((one, section))) == (one, section)
    assert pickle.loads(pickle.dumps(found.scene)).graph == found.scene.graph
    assert 0 <= one.error_in(scene, section).relative <= 1
    assert one.error_model(section).relative > 0


def test_a_change_can_be_screened_as_durations() -> None:
    scene = Trained(num_ranks=3, num_steps=3, timings=TIMED).scene()
    session = ReplaySession(scene.graph)
    changed = [done(scene, name).graph for name in (PlanSection.FUSION, PlanSection.COMPRESSION)]
    rows = np.array([graph.ops.work_ns for graph in changed])
    exact = {one.candidate: one.step_ns for one in session.screen(rows)}
    assert exact == {row: replay(graph).step_ns for row, graph in enumerate(changed)}


@pytest.mark.parametrize("has_layers", [False, True])
def test_a_fused_module_takes_its_ratio_of_the_recorded_time(has_layers: bool) -> None:
    scene = Trained(has_layers_in_forward=has_layers, timings=TIMED).scene()
    fused = done(scene, PlanSection.FUSION)
    saved_ns = 0.2 * (FORWARD_NS["block.0.a"] + FORWARD_NS["block.0.b"])
    assert work_ns(scene, OpKind.FORWARD) - work_ns(fused, OpKind.FORWARD) == saved_ns
    recorded_ns = BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"]
    assert work_ns(fused, OpKind.BACKWARD, "block.0") == 0.75 * recorded_ns + ADD_NS
    assert work_ns(fused, OpKind.BACKWARD, "block.1") == work_ns(scene, OpKind.BACKWARD, "block.1")


def test_a_fused_module_releases_its_gradients_at_the_end_of_its_backward() -> None:
    scene = Trained(num_ranks=1, num_steps=1, timings=TIMED).scene()
    both = FusionSection(modules=("Net",))
    timeline = replay(done(scene, PlanSection.FUSION, fusion=both).graph)
    graph = timeline.graph
    backward = (graph.ops.kind == OpKind.BACKWARD) & (graph.ops.layer >= 0)
    computing = backward & (graph.ops.work_ns > ADD_NS)
    end_ns = timeline.end_ns[computing].max()
    assert (timeline.end_ns[graph.gradients.made_by] > end_ns).all()
    assert (timeline.end_ns[graph.gradients.made_by] <= end_ns + 2 * ADD_NS).all()
    recorded = replay(scene.graph)
    first = int(graph.gradients.made_by.min())
    assert recorded.end_ns[first] < timeline.end_ns[first]


def test_each_pass_through_the_model_is_fused_by_itself() -> None:
    scene = Trained(num_passes=3, timings=TIMED).scene()
    graph = done(scene, PlanSection.FUSION).graph
    recorded_ns = BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"]
    number = list(graph.strings).index("block.0.b")
    first = (graph.ops.kind == OpKind.BACKWARD) & (graph.ops.layer == number)
    assert (graph.ops.work_ns[first] == 0.75 * recorded_ns).all()


def test_recomputing_adds_forward_and_drops_all_but_the_first_activation() -> None:
    scene = Trained(num_ranks=1, num_steps=1).scene()
    section = RecomputeSection(modules=("block.0",))
    new = done(scene, PlanSection.RECOMPUTE, recompute=section)
    added_ns = work_ns(new, OpKind.BACKWARD) - work_ns(scene, OpKind.BACKWARD)
    assert added_ns == FORWARD_NS["block.0.a"] + FORWARD_NS["block.0.b"]
    assert work_ns(new, OpKind.FORWARD) == work_ns(scene, OpKind.FORWARD)

    def held_at(scene: Scene, kind: OpKind) -> int:
        """Activations while the first operation of a kind runs."""
        graph, timeline = scene.graph, replay(scene.graph)
        at_ns = timeline.start_ns[np.flatnonzero(graph.ops.kind == kind)[0]]
        own = graph.buffers.kind == MemoryKind.ACTIVATION
        own &= timeline.start_ns[graph.buffers.taken_by] <= at_ns
        own &= timeline.end_ns[graph.buffers.given_by] > at_ns
        return int(graph.buffers.size_bytes[own].sum())

    dropped = SAVED_BYTES["block.0.b"]
    assert held_at(scene, OpKind.BACKWARD) - held_at(new, OpKind.BACKWARD) == dropped
    assert held_at(scene, OpKind.FORWARD) - held_at(new, OpKind.FORWARD) == dropped
    assert new.graph.buffers.size_bytes.tolist() == scene.graph.buffers.size_bytes.tolist()


def test_a_recomputed_module_is_compiled_or_whole_compiled_modules_are_inside_of_it() -> None:
    scene = Trained(num_ranks=1, num_steps=1, timings=TIMED).scene()
    section = RecomputeSection(modules=("block.0",))
    fused_first = done(scene, PlanSection.FUSION, PlanSection.RECOMPUTE, recompute=section)
    plain = done(scene, PlanSection.RECOMPUTE, recompute=section)
    forward_ns = FORWARD_NS["block.0.a"] + FORWARD_NS["block.0.b"]
    backward_ns = BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"]
    whole_ns = round(0.8 * forward_ns + 0.75 * backward_ns) + ADD_NS
    assert work_ns(fused_first, OpKind.BACKWARD, "block.0") == whole_ns
    assert work_ns(plain, OpKind.BACKWARD, "block.0") == forward_ns + backward_ns + ADD_NS
    inner = RecomputeSection(modules=("block.0.a",))
    with pytest.raises(InputError, match=r"lies within the compiled module 'block\.0'"):
        done(scene, PlanSection.FUSION, PlanSection.RECOMPUTE, recompute=inner)


def test_modules_with_running_statistics_are_not_recomputed() -> None:
    classes = tuple((p, "BatchNorm2d" if p == "block.0.b" else c) for p, c in Trained().classes)
    scene = Trained(classes=classes).scene()
    with pytest.raises(InputError, match=r"running statistics of 'block\.0\.b'"):
        done(scene, PlanSection.RECOMPUTE)


def test_half_precision_scales_modules_as_measured_and_leaves_adding_up_gradients() -> None:
    scene = Trained(timings=TIMED).scene()
    half = done(scene, PlanSection.PRECISION)
    assert work_ns(half, OpKind.BACKWARD, "block.1") == pytest.approx(
        0.6 * (BACKWARD_NS["block.1.a"] + BACKWARD_NS["block.1.b"]) + ADD_NS, rel=1e-6
    )
    own = scene.graph.buffers.kind == MemoryKind.ACTIVATION
    halved = np.ceil(scene.graph.buffers.size_bytes[own] * 0.5)
    assert half.graph.buffers.size_bytes[own].tolist() == halved.tolist()
    others = half.graph.buffers.size_bytes[~own]
    assert others.tolist() == scene.graph.buffers.size_bytes[~own].tolist()
    assert SECTION_PASSES[PlanSection.PRECISION].applies(Trained(uses_autocast=True).scene()) == [
        "the run is under autocast already"
    ]


@pytest.mark.parametrize(
    "order",
    [
        (PlanSection.FUSION, PlanSection.PRECISION),
        (PlanSection.PRECISION, PlanSection.FUSION),
    ],
)
def test_fused_half_precision_uses_its_own_measurement_in_any_order(
    order: tuple[PlanSection, PlanSection],
) -> None:
    scene = done(Trained(timings=TIMED).scene(), *order)
    recorded_ns = BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"]
    assert work_ns(scene, OpKind.BACKWARD, "block.0") == pytest.approx(
        80 / 200 * recorded_ns + ADD_NS, rel=1e-6
    )


def test_order_does_not_matter_for_sections_of_modules() -> None:
    scene = Trained(timings=TIMED).scene()
    names = [PlanSection.FUSION, PlanSection.PRECISION, PlanSection.THREADS]
    first, second = done(scene, *names), done(scene, *reversed(names))
    assert np.abs(first.graph.ops.work_ns - second.graph.ops.work_ns).max() <= 2


def test_errors_are_small_where_modules_were_timed() -> None:
    timed, untimed = Trained(timings=TIMED).scene(), Trained().scene()
    for name in (PlanSection.FUSION, PlanSection.PRECISION, PlanSection.THREADS):
        one, section = SECTION_PASSES[name], SECTIONS[name]
        assert one.error_in(timed, section).relative < 0.1
        assert one.error_in(untimed, section).relative > one.error_in(timed, section).relative


def test_compression_halves_transfers_and_adds_casts() -> None:
    scene = Trained().scene()
    section = CompressionSection(dtype=HalfPrecision.BFLOAT16)
    new = done(scene, PlanSection.COMPRESSION, compression=section)
    before, after = (work_ns(one, OpKind.ALL_REDUCE) for one in (scene, new))
    assert after == pytest.approx(before / 2, rel=0.03)
    assert work_ns(new, OpKind.COPY) > work_ns(scene, OpKind.COPY)
    assert work_ns(new, OpKind.BACKWARD) > work_ns(scene, OpKind.BACKWARD)
    own = new.graph.buffers.kind == MemoryKind.COMMUNICATION
    sizes = sorted(new.graph.buffers.size_bytes[own].tolist())
    assert sizes == sorted(size // 2 for size in PARAMETER_BYTES.values() for _ in range(4))
    alone = Trained(num_ranks=1).scene()
    assert SECTION_PASSES[PlanSection.COMPRESSION].applies(alone) == ["one rank sends no gradients"]


def test_a_loader_takes_away_waits_as_far_as_its_processes_keep_up() -> None:
    busy_ns = sum(FORWARD_NS.values()) + LOSS_NS + sum(BACKWARD_NS.values())
    scene = Trained(loading_ns=8 * busy_ns).scene()
    few, many = (
        done(scene, PlanSection.LOADER, loader=LoaderSection(num_workers=num)) for num in (1, 16)
    )
    none = work_ns(scene, OpKind.DATA)
    assert work_ns(few, OpKind.DATA) > 0.5 * none
    assert work_ns(many, OpKind.DATA) < 0.05 * none
    assert replay(many.graph).step_ns >= replay(scene.graph).step_ns - none
    assert SECTION_PASSES[PlanSection.LOADER].applies(Trained().scene())


def test_more_threads_than_cores_gain_nothing() -> None:
    scene = Trained(cores_per_rank=2.0).scene()
    steps = {
        num: replay(
            done(scene, PlanSection.THREADS, threads=ThreadsSection(num_threads=num)).graph
        ).step_ns
        for num in (1, 2, 4, 64)
    }
    assert steps[1] == replay(scene.graph).step_ns
    assert steps[1] / 2 < steps[2] < steps[1]
    assert steps[2] <= steps[4] <= steps[64]


def test_micro_batches_keep_the_work_and_divide_the_activations() -> None:
    scene = Trained(num_ranks=1, num_steps=1).scene()
    new = done(scene, PlanSection.ACCUMULATE)
    compute_ns = sum(work_ns(scene, kind) for kind in (OpKind.FORWARD, OpKind.BACKWARD))
    split_ns = sum(work_ns(new, kind) for kind in (OpKind.FORWARD, OpKind.BACKWARD))
    assert split_ns == compute_ns + 3 * 2 * ADD_NS
    assert work_ns(new, OpKind.BACKWARD, "block.0") == pytest.approx(
        (BACKWARD_NS["block.0.a"] + BACKWARD_NS["block.0.b"]) / 4 + ADD_NS
    )
    graph, timeline = new.graph, replay(new.graph)
    at_ns = timeline.start_ns[np.flatnonzero(graph.ops.kind == OpKind.BACKWARD)[0]]
    taken = timeline.start_ns[graph.buffers.taken_by] <= at_ns
    held = {
        kind: int(graph.buffers.size_bytes[taken & (graph.buffers.kind == kind)].sum())
        for kind in (MemoryKind.ACTIVATION, MemoryKind.GRADIENT)
    }
    assert held[MemoryKind.ACTIVATION] == sum(SAVED_BYTES.values()) / 4
    assert held[MemoryKind.GRADIENT] == sum(PARAMETER_BYTES.values())
    same = done(scene, PlanSection.ACCUMULATE, accumulate=AccumulateSection(num_micro_batches=1))
    assert same.graph == scene.graph


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_sharding_divides_the_memory_of_its_stage(stage: int) -> None:
    scene = Trained(num_ranks=4).scene()
    new = done(scene, PlanSection.SHARDING, sharding=ShardingSection(stage=stage))
    before, after = scene.graph.buffers, new.graph.buffers
    divided = (MemoryKind.OPTIMIZER, MemoryKind.GRADIENT, MemoryKind.PARAMETER)[:stage]
    own = np.isin(before.kind, divided)
    assert (after.size_bytes[own] == before.size_bytes[own] / 4).all()
    assert (after.size_bytes[~own] == before.size_bytes[~own]).all()


@pytest.mark.parametrize(
    ("name", "section", "message"),
    [
        (PlanSection.FUSION, FusionSection(modules=("no.such",)), "no module 'no.such'"),
        (PlanSection.FUSION, FusionSection(modules=()), "0 modules"),
        (PlanSection.FUSION, FusionSection(modules=("Net", "block.0")), "lies within 'Net'"),
        (PlanSection.RECOMPUTE, RecomputeSection(modules=("x\x1b[2J",)), "no module 'x"),
        (PlanSection.RECOMPUTE, RecomputeSection(modules=("block.0", "block.0.a")), "lies within"),
        (PlanSection.THREADS, ThreadsSection(num_threads=0), "num_threads is 0"),
        (PlanSection.LOADER, LoaderSection(num_workers=0), "num_workers is 0"),
        (PlanSection.ACCUMULATE, AccumulateSection(num_micro_batches=-1), "num_micro_batches"),
        (PlanSection.SHARDING, ShardingSection(stage=4), "stage is 4"),
    ],
)
def test_hostile_sections_give_one_clear_error(
    name: PlanSection, section: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        SECTION_PASSES[name].apply(Trained(loading_ns=MS).scene(), section)
    assert caught.value.remedy
    assert "\x1b" not in caught.value.cause


def test_a_section_is_applied_once() -> None:
    scene = done(Trained().scene(), PlanSection.PRECISION)
    with pytest.raises(InputError, match="precision is applied already"):
        done(scene, PlanSection.PRECISION)


def test_a_module_that_cannot_be_compiled_is_refused() -> None:
    failed = ModuleTiming(modules=["block.0"], variant="compiled", trouble="it breaks")
    scene = Trained(timings=(*TIMED[:1], failed)).scene()
    with pytest.raises(InputError, match=r"'block\.0' cannot be compiled: it breaks"):
        done(scene, PlanSection.FUSION)


def test_half_precision_that_a_module_cannot_run_in_is_refused() -> None:
    failed = ModuleTiming(modules=["block.1.a"], variant="bfloat16", trouble="no such kernel")
    scene = Trained(timings=(*TIMED, failed)).scene()
    with pytest.raises(InputError, match=r"'block\.1\.a' cannot run in bfloat16: no such kernel"):
        done(scene, PlanSection.PRECISION)


@pytest.mark.parametrize("run", ["conv-2", "buckets-3", "accumulation-2"])
def test_sections_apply_to_recorded_runs(run: str) -> None:
    scene = open_source(GOLDEN / run).scene
    sections = SECTIONS | {
        PlanSection.FUSION: FusionSection(modules=("2", "3")),
        PlanSection.RECOMPUTE: RecomputeSection(modules=("2", "3")),
    }
    before = replay(scene.graph)
    for name, one in SECTION_PASSES.items():
        if name is PlanSection.LOADER:
            assert one.applies(scene) == ["no operation loads data"]
            continue
        assert one.applies(scene) == []
        graph = one.apply(scene, sections[name]).scene.graph
        verify(graph)
        assert structure(graph) == structure(scene.graph)
        after = replay(graph)
        assert after.step_ns > 0
        if name is PlanSection.SHARDING:
            assert after.peak_memory[0].size_bytes < before.peak_memory[0].size_bytes
