"""The oracle compared with llm-analysis.

One evaluation of each alternates in one process; and a cold sweep of the oracle, per configuration,
is compared with one evaluation of a warm llm-analysis.

    python -m benchmarks.oracle.versus

llm-analysis (Apache-2.0) is installed from PyPI into build/, without the packages that only its
model downloads need. One of its evaluations is a training configuration of OPT-1.3B: time and
memory, with varying numbers of samples; its logging is off.
"""

from __future__ import annotations

import importlib
import logging
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from augury.oracle.layer_costs import LayerWork
from benchmarks.measure import at_least, cpu_seconds, ratio, report, say
from benchmarks.oracle.sweep import CLUSTER, cold_sweep, deep_model, one_by_one

PEER = ("llm-analysis==0.2.2", "fire==0.5.0", "six", "termcolor")
FOLDER = Path("build/llm-analysis")
NUM_EVALUATIONS = 200
ROUNDS = 5


def main() -> int:
    try:
        peer = llm_analysis()
    except subprocess.CalledProcessError:
        say("llm-analysis cannot be installed: skipping the comparison")
        return 5
    ours, number = one_by_one(LayerWork.of(deep_model(), CLUSTER.described_device))
    ours()
    peer()
    single = ratio(peer, ours, rounds=ROUNDS).scaled(number / NUM_EVALUATIONS)
    peer_s = statistics.median(cpu_seconds(peer) for _ in range(ROUNDS)) / NUM_EVALUATIONS
    spent_s, num_swept = cold_sweep()
    held = [
        report(
            "oracle_single_vs_llm_analysis",
            single.value,
            "x",
            None,
            low=round(single.low, 3),
            high=round(single.high, 3),
        ),
        report(
            "oracle_cold_sweep_vs_llm_analysis",
            peer_s / (spent_s / num_swept),
            "x",
            at_least(20),
            num=num_swept,
        ),
    ]
    return 0 if all(held) else 5


def llm_analysis() -> Callable[[], object]:
    install()
    sys.path.insert(0, str(FOLDER.resolve()))
    logging.disable(logging.CRITICAL)
    analysis: Any = importlib.import_module("llm_analysis.analysis")
    config: Any = importlib.import_module("llm_analysis.config")
    planner = analysis.LLMAnalysis(
        config.get_model_config_by_name("facebook_opt-1.3b"),
        config.get_gpu_config_by_name("v100-sxm-32gb"),
        config.get_dtype_config_by_name("w16a16e16"),
        config.ParallelismConfig(tp_size=1, pp_size=1, dp_size=8),
    )

    def run() -> None:
        for number in range(NUM_EVALUATIONS):
            planner.training(batch_size_per_gpu=1 + number % 8, total_num_tokens=1e9, seq_len=512)

    return run


def install() -> None:
    if not (FOLDER / "llm_analysis").is_dir():
        say("installing llm-analysis, once")
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", str(FOLDER), *PEER], check=True)


if __name__ == "__main__":
    sys.exit(main())
