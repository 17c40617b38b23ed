"""Plans as files: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from augury.core.enums import OpKind
from augury.core.errors import InputError, UsageError
from augury.core.plan.plan import (
    CommunicationSection,
    Mode,
    Order,
    Piece,
    PlanPrediction,
    PlanSection,
    Slice,
    communication_of,
    communication_plan,
    parameters_digest,
)
from augury.core.plan.plan_file import decode_plan, encode_plan, load_plan, save_plan
from augury.core.plan.plan_spec import order_errors
from augury.core.plan.problem import Gradient, Network, Problem, Scheme
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

PROBLEM = Problem(
    gradients=(
        Gradient(name="first", size_bytes=64, release_ns=90, need_ns=0),
        Gradient(name="last", size_bytes=256, release_ns=10, need_ns=30, update_ns=3),
    ),
    backward_ns=100,
    forward_ns=50,
    network=Network(ns_per_byte=0.5, overhead_ns=7),
)
FIRST = Slice(gradient=0, offset_bytes=0, size_bytes=64)
HALVES = tuple(Slice(gradient=1, offset_bytes=at, size_bytes=128) for at in (0, 128))
PIECES = (
    Piece(op=OpKind.ALL_REDUCE, slices=(HALVES[1],)),
    Piece(op=OpKind.ALL_REDUCE, slices=(FIRST, HALVES[0]), not_before_ns=95),
)
SECTION = CommunicationSection(
    mode=Mode.PIECES,
    problem=PROBLEM,
    order=Order(policy="augury", pieces=PIECES, has_barrier=False, window_bytes=1 << 20),
    replay_ratios={"urgent": 1.1},
)
PLAN = communication_plan(
    SECTION,
    num_ranks=2,
    run_digest="0" * 64,
    prediction=PlanPrediction(
        baseline_ns=300,
        step_ns=200,
        interval_ns=(190, 210),
        bound_ns=180,
        without_ns={PlanSection.COMMUNICATION: 300},
    ),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    save_plan(PLAN, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == PLAN
    assert PLAN.prediction is not None
    assert PLAN.prediction.gain_pct == pytest.approx(100 / 3)


def test_a_file_names_what_it_does(tmp_path: Path) -> None:
    save_plan(PLAN, tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["schema_version"] == 2
    assert document["plan"]["communication"]["order"]["pieces"][0]["op"] == "all_reduce"


def test_every_section_is_read_again() -> None:
    whole = replace(
        PLAN,
        communication=None,
        fusion=FusionSection(modules=("blocks.0", "blocks.10", "head")),
        recompute=RecomputeSection(modules=("",)),
        precision=PrecisionSection(dtype=HalfPrecision.FLOAT16),
        compression=CompressionSection(),
        loader=LoaderSection(num_workers=2),
        threads=ThreadsSection(num_threads=3),
        accumulate=AccumulateSection(num_micro_batches=4),
        sharding=ShardingSection(stage=3),
        memory_limit_bytes=8 << 30,
        applied=tuple(one for one in PlanSection if one is not PlanSection.COMMUNICATION),
        prediction=None,
    )
    assert decode_plan(encode_plan(whole)) == whole


def test_nothing_is_overwritten_by_accident(tmp_path: Path) -> None:
    save_plan(PLAN, tmp_path / "plan.json")
    with pytest.raises(UsageError, match="exists"):
        save_plan(PLAN, tmp_path / "plan.json")
    save_plan(PLAN, tmp_path / "plan.json", force=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": "\xff"}',
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind":"augury-plan"}',
    ],
)
def test_what_is_no_plan_is_told_in_words(content: bytes) -> None:
    with pytest.raises(InputError):
        decode_plan(content)


def _piece(number: int, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: plan["communication"]["order"]["pieces"][number].update(changes)


def _gradient(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: plan["communication"]["problem"]["gradients"][1].update(changes)


def _slice(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: plan["communication"]["order"]["pieces"][0]["slices"][0].update(changes)


def _with_section(name: str, **content: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: plan.update({name: content, "applied": ["communication", name]})


HOSTILE = {
    "no ranks": lambda plan: plan.update(num_ranks=0),
    "a mode of its own": lambda plan: plan["communication"].update(mode="whatever"),
    "buckets without sizes": lambda plan: plan["communication"].update(mode="ddp-buckets"),
    "a piece that is none": _piece(0, op="explode"),
    "a number for a kind": _piece(0, op=3),
    "an empty piece": _piece(0, slices=[]),
    "a window of nothing": lambda plan: plan["communication"]["order"].update(window_bytes=0),
    "nothing in flight": lambda plan: plan["communication"]["order"].update(lanes=0),
    "threads without number": lambda plan: plan["communication"]["order"].update(lanes=1 << 30),
    "a piece of the past": _piece(0, not_before_ns=-1),
    "half of another scheme": _piece(0, op="push"),
    "a second half without a first": _piece(0, op="all_gather", after=5),
    "completes what is whole": _piece(1, after=0),
    "a gradient that is not there": _slice(gradient=9),
    "a negative gradient": _slice(gradient=-1),
    "bytes sent twice": _slice(offset_bytes=0),
    "bytes beyond the end": _slice(offset_bytes=1 << 60),
    "a slice of half an item": _slice(size_bytes=126),
    "no bytes": _gradient(size_bytes=0),
    "too many bytes": _gradient(size_bytes=1 << 62),
    "released after backward": _gradient(release_ns=101),
    "needed after forward": _gradient(need_ns=51),
    "an update that takes back time": _gradient(update_ns=-1),
    "a text for a number": _gradient(need_ns="soon"),
    "a network that gains time": lambda plan: plan["communication"]["problem"]["network"].update(
        ns_per_byte=-1
    ),
    "not a number": lambda plan: plan["communication"]["problem"]["network"].update(
        latency_ns=None
    ),
    "nothing to send": lambda plan: plan["communication"]["problem"].update(gradients=[]),
    "other parameters": _gradient(name="renamed"),
    "no fingerprint": lambda plan: plan.update(parameters_digest=""),
    "a digest that is none": lambda plan: plan.update(run_digest="../../etc"),
    "an unknown framework": lambda plan: plan.update(framework="abacus"),
    "an unknown section": lambda plan: plan.update(exploit={}),
    "a section that is not applied": lambda plan: plan.update(threads={"num_threads": 2}),
    "a section without its content": lambda plan: plan.update(
        fusion={}, applied=["communication", "fusion"]
    ),
    "a section with an unknown field": _with_section("threads", num_threads=2, pinned=True),
    "modules that are none": _with_section("fusion", modules=[]),
    "a module twice": _with_section("fusion", modules=["a", "a"]),
    "a module within another": _with_section("recompute", modules=["a.b", "a"]),
    "a module within the whole model": _with_section("recompute", modules=["", "a"]),
    "an unknown number format": _with_section("precision", dtype="int3"),
    "workers without number": _with_section("loader", num_workers=0),
    "more threads than any machine has": _with_section("threads", num_threads=1 << 40),
    "micro-batches of nothing": _with_section("accumulate", num_micro_batches=0),
    "a fourth stage": _with_section("sharding", stage=4),
    "an applied section that is missing": lambda plan: plan.update(
        applied=["communication", "fusion"]
    ),
    "a section applied twice": lambda plan: plan.update(applied=["communication"] * 2),
    "a memory limit of nothing": lambda plan: plan.update(memory_limit_bytes=0),
    "a memory limit that is a text": lambda plan: plan.update(memory_limit_bytes="8GiB"),
    "no section": lambda plan: plan.update(communication=None, applied=[]),
    "a section that is a number": lambda plan: plan.update(
        fusion=7, applied=["communication", "fusion"]
    ),
    "bucket sizes of zero": lambda plan: plan["communication"].update(bucket_caps_bytes=[0]),
    "a negative ratio": lambda plan: plan["communication"].update(replay_ratios={"urgent": -1}),
    "a negative prediction": lambda plan: plan["prediction"].update(step_ns=-1),
    "a prediction without a missing section": lambda plan: plan["prediction"].update(
        without_ns={"fusion": 1}
    ),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_plans(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    document = json.loads(encode_plan(PLAN))
    change(document["plan"])
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"plan\.json"):
        load_plan(tmp_path / "plan.json")


def test_halves_of_a_parameter_server(tmp_path: Path) -> None:
    served = replace(
        PROBLEM, network=Network(ns_per_byte=1.0, scheme=Scheme.PARAMETER_SERVER, latency_ns=5)
    )
    pushes = tuple(replace(piece, op=OpKind.PUSH) for piece in PIECES)
    pulls = tuple(
        replace(piece, op=OpKind.PULL, after=1 - place, not_before_ns=0)
        for place, piece in enumerate(reversed(PIECES))
    )
    order = Order(policy="p3", pieces=pushes + pulls, has_barrier=False)
    assert not list(order_errors(order, served))
    section = replace(SECTION, problem=served, order=order)
    save_plan(communication_plan(section, num_ranks=2), tmp_path / "plan.json")
    assert communication_of(load_plan(tmp_path / "plan.json")).order == order
    without = replace(order, pieces=pushes + pulls[:1])
    assert any("not sent exactly once" in wrong for wrong in order_errors(without, served))


def test_a_plan_of_an_older_version_is_refused_with_a_remedy(tmp_path: Path) -> None:
    document = json.loads(encode_plan(PLAN))
    document["schema_version"] = 1
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="made by an older Augury") as caught:
        load_plan(tmp_path / "plan.json")
    assert "run `augury schedule RUN -o plan.json` again" in str(caught.value.remedy)


def test_sections_are_applied_in_the_stated_order(tmp_path: Path) -> None:
    plan = replace(
        PLAN,
        precision=PrecisionSection(),
        applied=(PlanSection.PRECISION, PlanSection.COMMUNICATION),
    )
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    assert plan.sections == (PlanSection.COMMUNICATION, PlanSection.PRECISION)


def test_the_fingerprint_depends_on_names_and_sizes_but_not_on_their_order() -> None:
    parameters = [("a", 8, 4), ("b", 16, 4)]
    assert parameters_digest(parameters) == parameters_digest(parameters[::-1])
    for other in ([("a", 8, 4), ("c", 16, 4)], [("a", 8, 4), ("b", 20, 4)], parameters[:1]):
        assert parameters_digest(parameters) != parameters_digest(other)


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_plan(tmp_path / "nowhere.json")
