"""Contents of pages for tests: diagnoses made by hand, and runs of any source."""

from __future__ import annotations

from pathlib import Path

import msgspec

from augury.core.graph.graph import Graph
from augury.core.ledger import Anomaly, Severity
from augury.core.results.diagnosis import Diagnosis, Figure, Finding, Place, WaterfallPart
from augury.core.run_page import RunPage
from augury.predict.opened_run import open_graph, open_source
from augury.predict.run_page import gather_run_page
from augury.report.page.run_page import WrittenPage, write_run_page


def content_of(
    source: Path | Graph, *, diagnosis: Diagnosis | None = None, quick: bool = False
) -> RunPage:
    opened = open_graph(source) if isinstance(source, Graph) else open_source(source)
    return gather_run_page(opened, diagnosis=diagnosis, quick=quick)


def write_page(
    source: Path | Graph, path: Path, *, diagnosis: Diagnosis | None = None, quick: bool = False
) -> WrittenPage:
    return write_run_page(content_of(source, diagnosis=diagnosis, quick=quick), path)


def diagnosis_of(step_ns: int, *, name: str = "layer3.conv2") -> Diagnosis:
    """A diagnosis with two findings about a step of this duration; ``name`` appears in it."""
    finding = Finding(
        kind="straggler-compute",
        title=f"Rank 5 computes 1.4 times as long as the median rank, most of it in {name}",
        where=Place(ranks=[5], hosts=["host-5"], steps=[0], layers=[name]),
        evidence=[
            Figure(name="compute of rank 5", value=step_ns * 0.7, unit="ns"),
            Figure(name="compute of the median rank", value=step_ns * 0.5, unit="ns"),
            Figure(name="slowdown", value=1.4, unit="x"),
        ],
        predicted_step_ns=round(step_ns * 0.82),
        interval_ns=(round(step_ns * 0.79), round(step_ns * 0.86)),
        gain_pct=18.0,
        gain_interval_pct=(14.0, 21.0),
        confidence="high",
        action="Look for other processes on the host of rank 5, or leave it out.",
        command="augury whatif RUN --no-straggler",
    )
    second = msgspec.structs.replace(
        finding,
        kind="exposed-communication",
        title="31 % of the step is exposed communication of gradients",
        where=Place(size_bytes=26_214_400),
        predicted_step_ns=round(step_ns * 0.9),
        interval_ns=(round(step_ns * 0.86), round(step_ns * 0.95)),
        gain_pct=10.0,
        gain_interval_pct=(5.0, 14.0),
        confidence="medium",
        action="Let Augury order the gradients.",
        command="augury schedule RUN -o plan.json",
        applied_by="schedule",
    )
    parts = [("error of the replay", 0.02), ("stragglers", 0.18), ("exposed communication", 0.31)]
    left = step_ns
    waterfall = []
    for cause, share in parts:
        left -= round(share * step_ns)
        waterfall.append(WaterfallPart(name=cause, removed_ns=round(share * step_ns), step_ns=left))
    return Diagnosis(
        bound="straggler",
        verdict="straggler-bound: rank 5 delays every step by 18 %",
        measured_step_ns=step_ns,
        replayed_step_ns=round(0.98 * step_ns),
        interval_ns=(round(0.95 * step_ns), round(1.02 * step_ns)),
        noise_pct=1.5,
        waterfall=waterfall,
        findings=[finding, second],
        not_examined={"slow-input": "the recording has no events of the data loader"},
        ledger=[
            Anomaly(
                name="clock-drift",
                severity=Severity.WARNING,
                count=3,
                meaning="clocks of ranks differ",
                remedy="synchronize clocks",
            )
        ],
    )
