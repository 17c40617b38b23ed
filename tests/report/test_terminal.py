import io
import re

import pytest

from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.ledger import Ledger, Severity
from augury.core.timeline import Timeline
from augury.predict.summarize import summarize
from augury.replay.run import replay
from augury.report.terminal import render


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown(timeline: Timeline, file: io.StringIO | None = None, *, top: int = 10) -> str:
    file = file or io.StringIO()
    render(summarize(timeline), file, name="run.augury", top=top)
    return file.getvalue()


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


def test_the_breakdown_of_the_step_is_shown(straggling: Timeline) -> None:
    text = shown(straggling)
    assert "predicted" in text
    assert re.search(r"backward +[\d.]+ ms +\d+ % +█", text)
    assert re.search(r"\n0-4, 6-7 +compute", text)
    assert re.search(r"\n5 +compute", text)
    assert "Memory" in text


def test_servers_are_listed(with_servers: Timeline) -> None:
    assert re.search(r"\n8-9 +server", shown(with_servers))


def test_no_colour_without_a_terminal(straggling: Timeline) -> None:
    assert "\x1b" not in shown(straggling)


def test_colour_on_a_terminal_unless_refused(
    straggling: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" in shown(straggling, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown(straggling, Terminal()))


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_output_fits_the_width(
    straggling: Timeline, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, shown(straggling).splitlines())) <= columns


def test_plain_characters_with_an_ascii_encoding(straggling: Timeline) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    render(summarize(straggling), file, name="run.augury")
    assert b"####" in raw.getvalue()


def test_hostile_names_are_escaped(hostile: Timeline) -> None:
    text = shown(hostile, Terminal(), top=50)
    left = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b]", left)
    assert "\\x1b[31mred" in left
    assert "[bold red]" in left
    assert ":boom:" in left
    assert all(len(line) <= 100 for line in left.splitlines())
    # The only styles are ours: names add no red.
    assert "\x1b[31mred" not in text


def test_a_thousand_ranks_fit_a_screen() -> None:
    cluster = Cluster.of_hosts(
        num_hosts=128,
        ranks_per_host=8,
        intra=Link(latency_ns=1_000, bandwidth_bytes_per_s=10**11),
        inter=Link(latency_ns=10_000, bandwidth_bytes_per_s=10**10),
    )
    job = SyntheticJob(
        layers=conv_layers(ModelSize(num_layers=2)), cluster=cluster, jitter=0.1, seed=1
    )
    text = shown(replay(synthesize(job)))
    assert "1,024 ranks" in text
    assert "left out" in text
    assert len(text.splitlines()) < 80


def test_warnings_come_first_and_notes_last(straggling: Timeline) -> None:
    ledger = Ledger()
    ledger.note("odd-thing", "something is odd", count=3, remedy="mend it", example="this")
    ledger.note("small-thing", "something is small", severity=Severity.INFO)
    file = io.StringIO()
    render(summarize(straggling, ledger=ledger), file, name="run.augury")
    text = file.getvalue()
    assert text.index("Warnings") < text.index("Where the time goes") < text.index("Notes")
    assert "warning  odd-thing: something is odd (3 times)" in text
    assert "         remedy: mend it" in text
    assert text.index("Notes") < text.index("small-thing: something is small\n")
