"""Predictions of recorded runs, traces, the oracle and synthetic graphs, to be compared later.

``python -m tests.golden.predictions --runs DIR --out DIR [--traces DIR] [--against DIR]
[--command 'PYTHON -m augury'] [--only 'GLOB']``

Writes one JSON file per case. Everything is asked through the command line with ``--json``, whose
field names are stable: in this process, or with ``--command`` in one process per question. With
``--against`` every difference to the files of an earlier version is printed, and the exit code
is 5 if there is one.

``predictions`` has numbers, identifiers, kinds, policies and orders, and is compared. ``text`` has
prose and paths and is compared only with ``--text``; that there is a text is compared always.
Integers, thus all times in ns, must be equal; floats to nine digits. A field that only the newer
version has is not a difference.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import itertools
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ask = Callable[[list[str]], tuple[int, str]]

DIFFERENT = 5
FLOAT_DIGITS = 1e-9
POLICIES = (
    *("fifo", "ddp", "ddp-best", "p3", "bytescheduler", "mg-wfbp", "dear", "prophet"),
    "augury",
)
SLOW_NETWORK = ("--bandwidth", "0.02x")
"""At this bandwidth policies differ: small models exchange little over loopback."""

PROSE_KEYS = frozenset(
    {
        *("meaning", "remedy", "example", "cause", "why", "limit", "trouble", "changes"),
        *(
            "warnings",
            "notes",
            "constants",
            "fitted_on",
            "left_out",
            "path",
            "plan",
            "run",
            "folder",
        ),
    }
)
"""Keys whose values are prose or paths wherever they occur."""
PROSE_NAMES = frozenset(
    {("critical_path", "name"), ("critical_path", "resource"), ("resources", "name")}
)
"""Names for people in the entries of a list; ``kind``, ``op`` and ``rank`` identify these."""
TEXT = "<text>"


@dataclass(frozen=True)
class Question:
    label: str
    args: tuple[str | Path, ...]
    written: Path | None = None
    """A JSON file that the command writes: part of the prediction, null if it was not written."""


@dataclass(frozen=True)
class Case:
    name: str
    questions: tuple[Question, ...]


# Cases


def all_cases(runs: Path | None, traces: Path | None, scratch: Path) -> Iterator[Case]:
    copies = copied_runs(runs, scratch / "runs") if runs else {}
    for name, run in copies.items():
        yield Case(f"run-{name}", (*run_questions(run, scratch / name),))
    yield from diff_cases(copies)
    for folder in sorted(path for path in traces.iterdir() if path.is_dir()) if traces else []:
        yield Case(f"trace-{folder.name}", (*trace_questions(folder, scratch / folder.name),))
    yield from oracle_cases(copies)
    yield from synth_cases(scratch)


def copied_runs(runs: Path, folder: Path, names: Iterable[str] = ()) -> dict[str, Path]:
    """Copies of the recorded files alone. Verbs keep in a run's folder what they have read, and an
    earlier version's reading would stand for that of the version that is asked."""
    copies = {}
    for run in sorted(path for path in runs.iterdir() if path.is_dir()):
        if names and run.name not in names:
            continue
        copies[run.name] = folder / run.name
        copies[run.name].mkdir(parents=True)
        for path in run.iterdir():
            if path.name.startswith(("rank-", "process.wire-")):
                shutil.copy(path, copies[run.name])
        plan = run.with_name(f"{run.name}.plan.json")
        if plan.exists():
            shutil.copy(plan, folder)
    return copies


def run_questions(run: Path, scratch: Path) -> Iterator[Question]:
    num_ranks = len(list(run.glob("rank-?????.json")))
    has_wire = any(run.glob("*.wire.gz"))
    yield Question("replay", ("replay", run))
    yield Question("replay of the reference", ("replay", run, "--engine", "reference"))
    yield Question("replay without folding", ("replay", run, "--no-fold"))
    for change in run_changes(num_ranks):
        yield Question(f"whatif {change}", ("whatif", run, *change.split()))
    yield Question("replay fine", ("replay", run, "--fine"))
    for change in wire_changes(num_ranks) if has_wire else ("--algorithm tree",):
        yield Question(f"whatif {change}", ("whatif", run, *change.split()))
    yield Question("wire", ("wire", run))
    yield from schedule_questions(run, scratch)


def run_changes(num_ranks: int) -> tuple[str, ...]:
    more = 1 << num_ranks.bit_length()
    return (
        *("--bandwidth 0.5x", "--bandwidth 1Gbit/s", "--latency +50us", "--latency 2x"),
        *("--bucket-mb 1", "--bucket-mb 0.1,0.5", f"--ranks {more}", "--compute-scale 0:1.5"),
        *("--compute-scale 0.5", "--no-straggler", "--perfect-overlap"),
        f"--ranks {more} --bandwidth 0.1x --bucket-mb 0.2",
    )


def wire_changes(num_ranks: int) -> tuple[str, ...]:
    order = ",".join(str(rank) for rank in (0, *range(num_ranks - 1, 0, -1)))
    return (
        *("--fine --bandwidth 0.5x", "--fine --latency +50us", "--fine --bucket-mb 0.5"),
        *("--link-bandwidth 1:0.5x", "--link-bandwidth 1.out:1Gbit/s", "--half-duplex"),
        *("--algorithm ring", "--algorithm tree", "--algorithm halving-doubling"),
        *(f"--ring-order {order}", f"--fine --ranks {1 << num_ranks.bit_length()}"),
    )


def schedule_questions(source: Path, scratch: Path) -> Iterator[Question]:
    scratch.mkdir(parents=True, exist_ok=True)

    def to(name: str, option: str = "-o") -> dict[str, Any]:
        return {"option": (option, scratch / name), "written": scratch / name}

    def ask(
        label: str, *args: str | Path, option: tuple[str | Path, ...] = (), written: Any = None
    ) -> Question:
        return Question(label, ("schedule", *args, *option), written)

    yield ask("schedule", source, **to("plan.json"))
    yield ask("schedule --low-risk", source, "--low-risk", **to("low-risk.json"))
    yield ask("problem", source, "--policy", "ddp", **to("problem.json", "--problem"))
    slow = scratch / "slow.json"
    yield ask("slow schedule", source, *SLOW_NETWORK, **to("slow.json", "--problem"))
    # A bare problem has no noise that hides gains, so that plans are written.
    for policy in POLICIES:
        yield ask(f"order {policy}", slow, "--policy", policy, **to(f"{policy}.json"))
    yield ask("order --low-risk", slow, "--low-risk", **to("list.json"))


PAIRS = (
    *(("mlp-2", "buckets-2"), ("buckets-2", "pieces-2"), ("conv-2", "halves-2")),
    *(("buckets-2", "list-2"), ("buckets-3", "pieces-3"), ("buckets-3", "halves-3")),
    ("buckets-2", "buckets-3"),
)


def diff_cases(runs: dict[str, Path]) -> Iterator[Case]:
    """A plan that a run followed is beside its folder, as ``NAME.plan.json``."""
    for before, after in PAIRS:
        if not {before, after} <= runs.keys():
            continue
        pair = ("diff", runs[before], runs[after])
        questions = [Question("diff", pair)]
        plan = runs[after].with_name(f"{after}.plan.json")
        if plan.exists():
            questions.append(Question("diff --plan", (*pair, "--plan", plan)))
        questions.append(Question("diff --require-gain", (*pair, "--require-gain", "99")))
        yield Case(f"diff-{before}-{after}", tuple(questions))


def trace_questions(traces: Path, scratch: Path) -> Iterator[Question]:
    run = scratch / "imported"
    scratch.mkdir(parents=True, exist_ok=True)
    yield Question("import", ("import", traces, "-o", run, "--force"))
    yield Question("replay", ("replay", run))
    for change in ("--bandwidth 0.5x", "--compute-scale 0:1.5", "--perfect-overlap"):
        yield Question(f"whatif {change}", ("whatif", run, *change.split()))
    yield Question("schedule", ("schedule", run))


ORACLE = {
    "resnet50-abci": "--model resnet50 --cluster abci --devices 4:1024 --batch-per-device 64 "
    "--samples 1281167",
    "resnet50-bare": "--model resnet50 --cluster abci --devices 4:64 --batch-per-device 32 "
    "--constants bare --overlap 0.8",
    "resnet152-v100": "--model resnet152 --cluster v100 --devices 8:64 --global-batch 512 "
    "--optimizer adam --precision fp16",
    "vgg16-a100": "--model vgg16 --cluster a100 --devices 4,6,8,24 --global-batch 192 "
    "--precision tf32 --group 2",
    "cosmoflow-abci": "--model cosmoflow --cluster abci --devices 4:64 --batch-per-device 1",
    "cosmoflow-small": "--model cosmoflow --input-shape 4x128x128x128 --cluster abci "
    "--devices 4:64 --batch-per-device 1 --recompute",
    "resnet50-h100": "--model resnet50 --cluster h100 --devices 8:256 --global-batch 4096 "
    "--precision bf16 --recompute --optimizer adam",
    "vgg16-mi300x": "--model vgg16 --cluster mi300x --devices 8:32 --batch-per-device 32 "
    "--memory 4GB",
    "resnet50-cpu": "--model resnet50 --cluster cpu --devices 2:16 --batch-per-device 4 "
    "--optimizer sgd",
    "pipeline-gpipe": "--model vgg16 --cluster v100 --devices 4:16 --global-batch 64 "
    "--strategy pipeline,data --schedule gpipe --micro-batches 8",
    "pipeline-interleaved": "--model resnet50 --cluster v100 --devices 4,8 --global-batch 64 "
    "--strategy pipeline --schedule interleaved --chunks 3 --fidelity replay",
    "replay-abci": "--model resnet50 --cluster abci --devices 4,8 --batch-per-device 32 "
    "--fidelity replay",
    "replay-bare": "--model vgg16 --cluster abci --devices 4,16 --batch-per-device 16 "
    "--fidelity replay --constants bare --strategy data,zero1,zero2,zero3,filter,channel",
    "infeasible": "--model vgg16 --cluster v100 --devices 4 --batch-per-device 64 --memory 1MB",
}


def oracle_cases(runs: dict[str, Path]) -> Iterator[Case]:
    for name, options in ORACLE.items():
        yield Case(f"oracle-{name}", (Question("oracle", ("oracle", *options.split())),))
    measured = Path(__file__).parents[1] / "oracle" / "data" / "paradl_fig2.csv"
    validation = ("validate", "oracle", "--measured", measured)
    yield Case(
        "oracle-validation",
        (
            Question("bare", validation),
            Question("published", (*validation, "--constants", "published")),
            Question("every other", (*validation, "--fit", measured, "--every-other", "first")),
        ),
    )
    if "mlp-2" in runs:
        own = "--model tests.golden.training:mlp --input-shape 128 --cluster cpu --devices 2:8"
        args = ("oracle", *own.split(), "--batch-per-device", "32")
        times = ("--times", runs["mlp-2"], "--times-batch", "32")
        yield Case(
            "oracle-run",
            (
                Question("own model", args),
                Question("times", (*args, *times)),
                Question("collectives", (*args, "--collectives", runs["mlp-2"])),
                Question("replay", (*args, *times, "--fidelity", "replay")),
            ),
        )


SYNTH = {
    "gang": "--jitter 0.1 --steps 2 --straggler 3:1.4",
    "ring": "--algorithm ring --ranks 4 --model transformer",
    "tree": "--algorithm tree --ranks 6 --model uniform --layers 6 --bandwidth 1Gbit/s",
    "two-level": "--algorithm two-level --ranks 8 --ranks-per-host 4 --latency 50us",
    "gang-tree": "--algorithm gang-tree --ranks 16 --no-barrier --steps 3",
    "gang-two-level": "--algorithm gang-two-level --ranks 16 --ranks-per-host 4",
    "servers": "--scheme ps --ranks 4 --servers 3 --partition 1MB --no-barrier --steps 2",
    "gpipe": "--scheme pipeline --ranks 4 --schedule gpipe --micro-batches 6",
    "1f1b": "--scheme pipeline --ranks 8 --stages 4 --jitter 0.05 --seed 7",
}


def synth_cases(scratch: Path) -> Iterator[Case]:
    for name, options in SYNTH.items():
        graph = scratch / f"{name}.augury"
        changes = ("--bandwidth 0.5x", "--compute-scale 0:1.5", "--perfect-overlap")
        yield Case(
            f"synth-{name}",
            (
                Question("synth", ("synth", *options.split(), "-o", graph, "--force")),
                Question("replay", ("replay", graph)),
                Question("replay of the reference", ("replay", graph, "--engine", "reference")),
                *(Question(f"whatif {c}", ("whatif", graph, *c.split())) for c in changes),
                Question("schedule", ("schedule", graph)),
            ),
        )


# Asking


def in_process(args: list[str]) -> tuple[int, str]:
    from augury.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(args)
    return code, out.getvalue()


def by_command(command: str) -> Ask:
    def ask(args: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            [*shlex.split(command), *args], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    return ask


def predict(case: Case, ask: Ask, scratch: Path) -> dict[str, Any]:
    """``predictions`` and ``text`` of a case, by question."""
    predictions: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for question in case.questions:
        code, out = ask([*map(os.fspath, question.args), "--json"])
        # The folder has another name each time.
        document = json.loads(out.replace(str(scratch), "scratch")) if out.strip() else {}
        document.pop("schema_version", None)
        text: dict[str, str] = {}
        # The wording of an error is not a prediction, its exit code is.
        error = document.pop("error", None)
        if error is not None:
            text["error"] = error.get("cause", "")
        answer = {"exit_code": code, "result": parted(document, text)}
        if question.written is not None:
            has_file = question.written.exists()
            content = json.loads(question.written.read_bytes()) if has_file else None
            answer["written"] = parted(content, text, path="written")
        predictions[question.label] = answer
        texts[question.label] = text
    return {"predictions": predictions, "text": texts}


def parted(value: Any, text: dict[str, str], *, path: str = "", key: str = "") -> Any:
    """The value with prose replaced by a mark; the prose goes into ``text`` under its path."""
    if isinstance(value, dict):
        return {
            name: _marked(each, text, f"{path}.{name}".lstrip("."))
            if isinstance(each, str) and (name in PROSE_KEYS or (key, name) in PROSE_NAMES)
            else parted(each, text, path=f"{path}.{name}".lstrip("."), key=name)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [
            _marked(each, text, f"{path}[{place}]")
            if isinstance(each, str) and key in PROSE_KEYS
            else parted(each, text, path=f"{path}[{place}]", key=key)
            for place, each in enumerate(value)
        ]
    return value


def _marked(value: str, text: dict[str, str], path: str) -> str:
    if not value:
        return value
    text[path] = value
    return TEXT


# Comparing


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            here = f"{path} > {key}" if path else key
            if key in now:
                yield from differences(value, now[key], here)
            else:
                yield f"{here}: {_short(value)} is gone"
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{path}: {len(before)} entries, now {len(now)}"
        for place, (old, new) in enumerate(zip(before, now, strict=False)):
            yield from differences(old, new, f"{path}[{place}]")
    elif not _is_equal(before, now):
        yield f"{path}: {_short(before)}, now {_short(now)}"


def _is_equal(before: Any, now: Any) -> bool:
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=FLOAT_DIGITS, abs_tol=1e-15)
    return type(before) is type(now) and before == now


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def compare(before: Path, now: dict[str, Path], pattern: str, *, with_text: bool) -> int:
    """Prints every difference; returns their number. A case that only one side has is one."""
    count = 0
    earlier = {path.stem: path for path in before.glob("*.json")}
    for name in sorted(fnmatch.filter({*earlier, *now}, pattern)):
        old, new = (_load(files.get(name)) for files in (earlier, now))
        if old is None or new is None:
            found: Iterable[str] = ["only " + ("now" if new else "before")]
        else:
            found = differences(old["predictions"], new["predictions"])
            if with_text:
                found = itertools.chain(found, differences(old["text"], new["text"], "text"))
        for line in found:
            print(f"{name}: {line}")
            count += 1
    return count


def _load(path: Path | None) -> Any:
    return json.loads(path.read_bytes()) if path else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, help="a folder of recorded runs")
    parser.add_argument("--traces", type=Path, help="a folder of folders of traces")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--against", type=Path, help="compare with the files of this folder")
    parser.add_argument("--command", help="how to start augury; in this process by default")
    parser.add_argument("--only", default="*", help="cases whose names match")
    parser.add_argument("--text", action="store_true", help="also compare prose")
    options = parser.parse_args()
    ask = by_command(options.command) if options.command else in_process
    options.out.mkdir(parents=True, exist_ok=True)
    written = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in all_cases(options.runs, options.traces, Path(scratch)):
            if not fnmatch.fnmatch(case.name, options.only):
                continue
            content = json.dumps(predict(case, ask, Path(scratch)), indent=0)
            written[case.name] = options.out / f"{case.name}.json"
            written[case.name].write_text(content + "\n")
            print(f"{case.name}: {len(case.questions)} predictions", file=sys.stderr)
    if options.against is None:
        return 0
    count = compare(options.against, written, options.only, with_text=options.text)
    print(f"{len(written)} cases, {count} differences")
    return DIFFERENT if count else 0


if __name__ == "__main__":
    sys.exit(main())
