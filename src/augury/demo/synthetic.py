"""The synthetic demo: a run with a straggler, generated and replayed without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from augury import api
from augury.answers import ReplayAnswer
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.graph.graph_file import save_graph
from augury.core.progress import Progress, silent
from augury.report.exports import describe
from augury.report.perfetto import Written

STRAGGLER = 5
STRAGGLER_FACTOR = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticDemo:
    graph: Path
    timeline: Path
    replayed: ReplayAnswer
    written: Written | None

    @property
    def introduction(self) -> list[str]:
        """Lines that a reader needs before the replay."""
        return [
            f"A synthetic run of {self.replayed.result.num_ranks} ranks: gradients are all-reduced"
            " in buckets during",
            f"backward, and compute on rank {STRAGGLER} takes {STRAGGLER_FACTOR} times as long as"
            " on the others.",
        ]

    @property
    def conclusion(self) -> list[str]:
        """Lines about the replay and the files that were written."""
        return [
            f"Look for rank {STRAGGLER} above: the critical path runs through it, and the other"
            " ranks",
            "wait for it in their communication.",
            *describe(self.timeline, self.replayed.result.num_ops, self.written),
        ]


def replay_synthetic(
    out: Path, *, force: bool = False, progress: Progress = silent
) -> SyntheticDemo:
    """Writes a synthetic run to ``out/run.augury`` and its replayed timeline beside it."""
    path, timeline = out / "run.augury", out / "timeline.json"
    with progress("generating a synthetic run"):
        job = SyntheticJob(
            layers=conv_layers(ModelSize(num_layers=24)),
            jitter=0.02,
            num_steps=3,
            stragglers=((STRAGGLER, STRAGGLER_FACTOR),),
        )
        save_graph(synthesize(job), path, force=force)
    replayed = api.open(path, progress=progress).replay()
    written = replayed.write(timeline, force=force)
    return SyntheticDemo(graph=path, timeline=timeline, replayed=replayed, written=written)
