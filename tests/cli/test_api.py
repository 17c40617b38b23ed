"""``import augury``: a flat, typed, lazy interface."""

import subprocess
import sys
from pathlib import Path

import pytest

import augury
from tests.cli.conftest import environment


def test_public_names_are_those_documented() -> None:
    assert augury.__all__ == [
        "Graph",
        "GraphBuilder",
        "OpKind",
        "Run",
        "Timeline",
        "__version__",
        "apply",
        "demo",
        "doctor",
        "import_traces",
        "load",
        "open",
        "oracle",
        "record",
        "replay",
        "run",
        "save",
        "synth",
        "validate_oracle",
    ]
    for name in augury.__all__:
        assert getattr(augury, name) is not None
    assert set(augury.__all__) <= set(dir(augury))


def test_unknown_names_raise_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = augury.nonsense  # type: ignore[attr-defined]


def test_a_saved_graph_loads_and_replays(tmp_path: Path) -> None:
    builder = augury.GraphBuilder()
    rank = builder.rank()
    builder.op("forward", kind=augury.OpKind.FORWARD, rank=rank, work_ns=7)
    augury.save(builder.build(), tmp_path / "x.augury")
    timeline = augury.replay(augury.load(tmp_path / "x.augury"))
    assert isinstance(timeline, augury.Timeline)
    assert timeline.step_ns == 7


CALL = "g = augury.GraphBuilder(); g.op('x', rank=g.rank(), work_ns=3); "
CALL += "assert augury.replay(g.build()).step_ns == 3"


@pytest.mark.parametrize(
    "before",
    [
        "import augury",
        "import augury; import augury.replay",
        "import augury.replay.run; import augury",
        "from augury.replay import run; import augury",
        "import augury; augury.replay; import augury.replay.reference",
        "from augury import replay; import augury; assert callable(replay)",
    ],
)
def test_replay_is_callable_whatever_was_imported(before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{before}; {CALL}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr


def test_importing_augury_loads_no_heavy_modules() -> None:
    code = "import augury, sys; assert not {'numpy', 'msgspec', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
