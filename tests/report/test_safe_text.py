import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from augury.report.safe_text import escape, safe, shorten


@given(st.text())
def test_control_and_invisible_characters_are_removed(text: str) -> None:
    categories = {unicodedata.category(char) for char in escape(text)}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text(), st.integers(0, 50))
def test_never_longer_than_asked_for(text: str, max_chars: int) -> None:
    assert len(safe(text, max_chars=max_chars)) <= max_chars


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_escapes_are_readable() -> None:
    assert escape("a\x1b[1mb\n\u202e\U000e0001") == "a\\x1b[1mb\\n\\u202e\\U000e0001"


def test_letters_of_all_scripts_stay() -> None:
    assert escape("Größe 大小 gewichtθ") == "Größe 大小 gewichtθ"


def test_stacked_combining_marks_are_limited() -> None:
    assert escape("e\u0301\u0302\u0303") == "e\u0301\u0302\\u0303"


def test_module_paths_are_cut_at_a_separator() -> None:
    assert shorten("encoder.layer.11.attention", 16) == "...11.attention"
    assert shorten("encoder.layer.11.attention", 26) == "encoder.layer.11.attention"
    assert shorten("/home/operator/recordings/run-7", 20) == "...recordings/run-7"


def test_other_names_are_cut_at_the_end() -> None:
    assert shorten("void elementwise_kernel<4>(at::native)", 16) == "void elementw..."
    assert shorten("averyveryverylongname", 10) == "averyve..."
    assert shorten("module.a_single_name_that_is_long", 12) == "module.a_..."
