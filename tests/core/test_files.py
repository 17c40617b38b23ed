from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from augury.core.errors import AuguryError, UsageError
from augury.core.files import new_file


def test_the_file_appears_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "a"
    with new_file(path) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" whole")
    assert path.read_bytes() == b"half whole"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_a_plain_open(tmp_path: Path):
    with new_file(tmp_path / "new"):
        pass
    (tmp_path / "plain").open("wb").close()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_behind_and_passes(tmp_path: Path, error: BaseException):
    with pytest.raises(type(error)):
        _write_half(tmp_path / "a", error)
    assert list(tmp_path.iterdir()) == []


def _write_half(path: Path, error: BaseException) -> None:
    with new_file(path, force=True) as file:
        file.write(b"half")
        raise error


def test_a_write_that_fails_says_why_and_keeps_the_old_file(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(AuguryError, match=": No space left on device") as caught:
        _write_half(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(path) in caught.value.cause
    assert caught.value.remedy
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_replaced_unless_told_to(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="exists") as caught, new_file(path):
        pass
    assert "--force" in caught.value.remedy
    assert path.read_bytes() == b"old"
    with new_file(path, force=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_directory_is_not_a_file(tmp_path: Path):
    with pytest.raises(UsageError, match="is a directory"), new_file(tmp_path, force=True):
        pass


def test_the_folder_must_be_there(tmp_path: Path):
    with pytest.raises(UsageError, match="not a directory"), new_file(tmp_path / "no" / "a"):
        pass


def test_a_name_that_is_too_long_is_told(tmp_path: Path):
    with pytest.raises(AuguryError, match="File name too long"), new_file(tmp_path / ("x" * 300)):
        pass


def test_a_name_too_long_for_its_temporary_is_told(tmp_path: Path):
    with pytest.raises(AuguryError, match="File name too long"), new_file(tmp_path / ("x" * 250)):
        pass
