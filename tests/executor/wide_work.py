"""The wide work of Augury as command lines, for comparisons of engines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from augury.oracle.model_reader.model_file import save_model_file
from tests.ingest.written import Run, skewed
from tests.oracle.published import FIGURE
from tests.oracle.small import MODEL

ROOT = Path(__file__).parents[2]
MS = 1_000_000


def write_traces(folder: Path, num_ranks: int) -> list[Path]:
    """Writes one trace per rank; they differ in rank, host and clock."""
    run = Run(
        folder,
        clocks=tuple(skewed(rank * 3 * MS, rank % 3) for rank in range(num_ranks)),
        hosts=tuple(f"host{rank // 4}" for rank in range(num_ranks)),
        handshakes=False,
    )
    run.write()
    return sorted(folder.glob("*.0.trace.json.gz"))


def import_traces(traces: list[Path], out: Path, *engine: str) -> tuple[str, dict[str, bytes]]:
    """Returns the printed result, and the content of each written file."""
    said = augury("import", *traces, "-o", out, "--json", *engine)
    result = json.dumps(json.loads(said)["result"])
    return result, {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def sweep(folder: Path, *engine: str) -> str:
    model = folder / "model.json"
    if not model.exists():
        save_model_file(MODEL, model)
    asked = ("--devices", "4:64", "--global-batch", "256", "--fidelity", "replay", "--json")
    return augury("oracle", "--model", model, "--cluster", "abci", *asked, *engine)


def fit(*engine: str) -> str:
    rows = ("--measured", FIGURE, "--fit", FIGURE, "--model", "ResNet50", "--fit-model", "ResNet50")
    return augury("validate", "oracle", *rows, "--json", *engine)


def augury(*words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *map(str, words)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Work of a test is short: workers are started for the first item all the same.
_MAIN = """
import sys
import augury.executor as executor
executor.START_WORKERS_S = 0.0
from augury.cli.main import main
sys.exit(main())
"""
