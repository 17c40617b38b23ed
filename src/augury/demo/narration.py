"""Shows the demo stage by stage: what it does, what Augury says about it, where the files are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from augury.demo.loop import NUM_RECORDED_STEPS, NUM_STEPS, DemoLoop
from augury.demo.network import GBIT_EACH_WAY
from augury.demo.synthetic import STRAGGLER, STRAGGLER_FACTOR, SyntheticDemo
from augury.report.exports import describe
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from augury.report.exports import WrittenFile


def show_loop(loop: DemoLoop, file: TextIO) -> None:
    """Runs the stages of the loop and shows each as it ends."""
    network = f"a network of {GBIT_EACH_WAY} Gbit/s" if loop.has_slow_network else "loopback"
    _say(
        file,
        f"Two processes train a small convolutional network for {NUM_STEPS} steps, with DDP over",
        f"{network}. Augury records {NUM_RECORDED_STEPS} of the steps without changes to the code,",
        "replays them, and compares the prediction with the steps outside of the recording.",
        "",
    )
    loop.record()
    replayed, written = loop.replay()
    replayed.render(file)
    _say(file, "", *describe(loop.timeline, replayed.result.num_ops, written))
    _say(file, "", "What makes the step slow, and what would fixing it gain?", "")
    loop.diagnose().render(file)
    _say(file, "", "Which order of the gradients would be faster?", "")
    plans = loop.make_plan()
    plans.render(file)
    if plans.result.plan is None:
        _say(file, "", "No plan was written, because no plan pays off here.")
    else:
        _say(file, "", "The same training again, with the plan:", "")
        loop.follow_plan().render(file)
    _say(file, "", *_page_lines(loop.page, loop.write_page()))


def show_synthetic(shown: SyntheticDemo, file: TextIO) -> None:
    """Shows the results of the synthetic demo."""
    result = shown.replayed.result
    _say(
        file,
        f"A synthetic run of {result.num_ranks} ranks: gradients are all-reduced in buckets during",
        f"backward, and compute on rank {STRAGGLER} takes {STRAGGLER_FACTOR} times as long as on"
        " the others.",
        "",
    )
    shown.replayed.render(file)
    _say(
        file,
        "",
        f"Look for rank {STRAGGLER} above: the critical path runs through it, and the other ranks",
        "wait for it in their communication.",
        *describe(shown.timeline, result.num_ops, shown.written),
        "",
        "What makes the step slow, and what would fixing it gain?",
        "",
    )
    shown.diagnosed.render(file)
    _say(file, "", *_page_lines(shown.page, shown.written_page))


def _page_lines(page: Path, written: WrittenFile) -> list[str]:
    return [
        "All of it as one page: verdict, findings, timeline, ranks, layers, what-ifs, policies.",
        *describe(page, 0, written),
        f"its address: {page.resolve().as_uri()}",
    ]


def _say(file: TextIO, *lines: str) -> None:
    file.writelines(f"{safe(line, max_chars=2000)}\n" for line in lines)
