import json

from hypothesis import given
from hypothesis import strategies as st

from augury.core.ledger import Anomaly, Severity
from augury.core.timeline import Timeline
from augury.predict.summarize import summarize
from augury.report.as_json import encode, encode_document


@given(st.text())
def test_output_is_ascii_and_round_trips(text: str) -> None:
    encoded = encode_document(text=text)
    assert json.loads(encoded)["text"] == text
    assert all(" " <= char <= "~" or char == "\n" for char in encoded)


def test_structs_are_encoded() -> None:
    anomaly = Anomaly(name="x", severity=Severity.INFO, count=1, meaning="y")
    assert json.loads(encode_document(it=anomaly))["it"]["severity"] == "info"


def test_hostile_names_do_not_reach_the_terminal_raw(hostile: Timeline) -> None:
    encoded = encode(summarize(hostile))
    assert all(" " <= char <= "~" or char == "\n" for char in encoded)
    assert json.loads(encoded)["critical_path"][0]["name"] == "\x1b[31mred\x1b[0m"
