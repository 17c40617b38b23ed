from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import UsageError
from augury.core.units import (
    format_bytes,
    format_ns,
    format_percent,
    parse_bandwidth,
    parse_bytes,
    parse_time_ns,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("17", 17),
        ("50us", 50_000),
        ("50µs", 50_000),
        (" 1.5 ms ", 1_500_000),
        ("2s", 2_000_000_000),
        ("2S", 2_000_000_000),
        ("0.4ns", 0),
    ],
)
def test_time_as_people_write_it(text: str, value: int):
    assert parse_time_ns(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512", 512),
        ("25MB", 25_000_000),
        ("25MiB", 25 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("2kb", 2000),
        ("1TB", 10**12),
        ("1TiB", 2**40),
    ],
)
def test_bytes_as_people_write_them(text: str, value: int):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gbit/s", 1_250_000_000),
        ("10Gbit", 1_250_000_000),
        ("10Gbps", 1_250_000_000),
        ("10 gbit/s", 1_250_000_000),
        ("1.25GB/s", 1_250_000_000),
        ("1 MiB/s", 2**20),
        ("8bit/s", 1),
        ("8bps", 1),
        ("5B/s", 5),
        ("0.8 Tbit/s", 100 * 10**9),
    ],
)
def test_bandwidth_as_people_write_it(text: str, value: int):
    assert parse_bandwidth(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gb/s", 1_250_000_000),
        ("10 kb/s", 1250),
        ("1.25GBps", 1_250_000_000),
        ("3 MBps", 3_000_000),
    ],
)
def test_a_small_b_is_bits_and_a_capital_one_bytes(text: str, value: int):
    assert parse_bandwidth(text) == value


_WRONG = ["", "fast", "-5", "5 parsecs", "1e3", "1,5", "ms", "1.", "nan", "inf", "0x10"]


@pytest.mark.parametrize("text", _WRONG)
@pytest.mark.parametrize("parse", [parse_time_ns, parse_bytes, parse_bandwidth])
def test_anything_else_is_refused_with_an_example(parse: Callable[[str], int], text: str):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert repr(text) in caught.value.cause
    assert caught.value.remedy.startswith("write it as ")


@pytest.mark.parametrize("text", ["9" * 400, "9" * 25])
@pytest.mark.parametrize(
    ("parse", "unit"), [(parse_time_ns, "s"), (parse_bytes, "TB"), (parse_bandwidth, "TB/s")]
)
def test_a_number_beyond_64_bits_is_refused(parse: Callable[[str], int], unit: str, text: str):
    with pytest.raises(UsageError, match="too large"):
        parse(text + unit)


def test_a_unit_of_another_kind_is_refused():
    with pytest.raises(UsageError, match="ns, us, µs, ms, s"):
        parse_time_ns("5MB")
    with pytest.raises(UsageError, match="kib"):
        parse_bytes("5ms")
    for text in ("5", "5GB", "5 ms/s"):
        with pytest.raises(UsageError, match="not a bandwidth"):
            parse_bandwidth(text)


@pytest.mark.parametrize("text", ["0GB/s", "1bit/s", "0.1B/s"])
def test_a_bandwidth_of_nothing_is_refused(text: str):
    with pytest.raises(UsageError, match="zero"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (12_345, "12.3 us"),
        (123_456_789, "123 ms"),
        (1_500_000_000, "1.5 s"),
        (100_000_000_000, "100 s"),
        (-1_500_000, "-1.5 ms"),
    ],
)
def test_time_as_people_read_it(value: int, text: str):
    assert format_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (25_000_000, "25 MB"),
        (2 << 30, "2.15 GB"),
        (10**12, "1 TB"),
        (-2_000, "-2 kB"),
    ],
)
def test_bytes_as_people_read_them(value: int, text: str):
    assert format_bytes(value) == text


def test_percent_with_and_without_a_sign():
    assert format_percent(3.14) == "3.1 %"
    assert format_percent(3.14, signed=True) == "+3.1 %"
    assert format_percent(-3.16, signed=True) == "-3.2 %"


@given(st.integers(0, 10**15))
def test_what_is_written_parses_back_to_three_digits(value: int):
    assert parse_time_ns(format_ns(value)) == pytest.approx(value, rel=0.006, abs=0.5)
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=0.006, abs=0.5)


@given(st.text(max_size=12))
def test_no_text_causes_anything_but_a_usage_error(text: str):
    for parse in (parse_time_ns, parse_bytes, parse_bandwidth):
        try:
            value = parse(text)
        except UsageError:
            continue
        assert isinstance(value, int)
        assert value >= 0
