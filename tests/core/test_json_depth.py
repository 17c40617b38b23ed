from __future__ import annotations

import subprocess
import sys

import pytest

from augury.core.json_depth import MAX_DEPTH, bounded_depth

DECODERS = {
    "plan": "from augury.core.plan.plan_file import decode_plan as decode",
    "problem": "from augury.schedule.problem_file import decode_problem as decode",
    "model": "from augury.oracle.model_reader.model_file import decode_model as decode",
}
PROGRAM = """
import sys
sys.setrecursionlimit(1_000_000)
from augury.core.errors import InputError
{decoder}
for opening in (b"[", b'{{"a":', b'{{"kind": "' + b'[' * 9 + b'", "a": ['):
    try:
        decode(opening * 200_000)
    except InputError as error:
        print("refused:", error)
"""


@pytest.mark.parametrize("format_name", DECODERS)
def test_deep_nesting_is_refused_where_the_recursion_limit_was_raised(format_name: str):
    program = PROGRAM.format(decoder=DECODERS[format_name])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused:") == 3


@pytest.fixture
def raised_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("raised_limit")
def test_brackets_in_strings_do_not_count():
    text = b'{"' + b"[" * 10_000 + b'": "\\\\\\"' + b"{" * 10_000 + b'"}'
    assert bounded_depth(text) is text


@pytest.mark.usefixtures("raised_limit")
def test_wide_text_is_accepted_and_deep_text_is_not():
    wide = b"[" + b",".join([b"[[]]"] * 10_000) + b"]"
    assert bounded_depth(wide) is wide
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert bounded_depth(deepest) is deepest
    with pytest.raises(RecursionError):
        bounded_depth(b"[" + deepest + b"]")
    with pytest.raises(RecursionError):  # closing brackets in strings do not hide the depth
        bounded_depth(b'["]",' * (MAX_DEPTH + 1))
