"""The synthetic demo: a run with a straggler, generated, replayed and diagnosed without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from augury import api
from augury.answers import DiagnoseAnswer, ReplayAnswer
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.graph.graph_file import save_graph
from augury.core.progress import Progress, silent
from augury.report.perfetto import Written

if TYPE_CHECKING:
    from augury.report.exports import WrittenFile

STRAGGLER = 5
STRAGGLER_FACTOR = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticDemo:
    graph: Path
    timeline: Path
    replayed: ReplayAnswer
    written: Written | None
    diagnosed: DiagnoseAnswer
    page: Path
    written_page: WrittenFile


def diagnose_synthetic(
    out: Path, *, force: bool = False, progress: Progress = silent
) -> SyntheticDemo:
    """Writes a synthetic run to ``out/run.augury``, with its replayed timeline and the page about
    it next to it."""
    path, timeline, page = out / "run.augury", out / "timeline.json", out / "report.html"
    with progress("generating a synthetic run"):
        job = SyntheticJob(
            layers=conv_layers(ModelSize(num_layers=24)),
            jitter=0.02,
            num_steps=3,
            stragglers=((STRAGGLER, STRAGGLER_FACTOR),),
        )
        save_graph(synthesize(job), path, force=force)
    run = api.open(path, progress=progress)
    replayed = run.replay()
    return SyntheticDemo(
        graph=path,
        timeline=timeline,
        replayed=replayed,
        written=replayed.write(timeline, force=force),
        diagnosed=run.diagnose(),
        page=page,
        written_page=run.report(page, force=force),
    )
