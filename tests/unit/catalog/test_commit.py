"""A file appears whole or not at all."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from prep.catalog.commit import atomic_write, store_errors
from prep.catalog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIES_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from prep.catalog.commit import atomic_write
with atomic_write(Path(sys.argv[1]), scratch=Path(sys.argv[2])) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def files_may_not_exceed(size: int) -> Iterator[None]:
    """A full disk, as the kernel tells it: writes beyond `size` bytes of a file fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fail_after_half(path: Path, error: BaseException) -> None:
    with atomic_write(path) as stream:
        stream.write(b"half")
        raise error


def test_a_file_has_its_content_when_the_body_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as stream:
        stream.write(b"whole")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_the_exception_of_a_failing_body_goes_on_and_nothing_is_left(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "file"
    with pytest.raises(type(error)) as raised:
        fail_after_half(path, error)
    assert raised.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_failing_body_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="mine"):
        fail_after_half(path, ValueError("mine"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_error_with_the_path_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with files_may_not_exceed(1000), pytest.raises(StoreError) as raised, atomic_write(path) as stream:
        stream.write(b"x" * 100_000)
    assert str(path) in str(raised.value)
    assert "make room" in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"), atomic_write(tmp_path / "none" / "file"):
        pass


def test_the_temporary_file_lies_in_the_scratch_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with atomic_write(tmp_path / "file", scratch=scratch) as stream:
        stream.write(b"x")
        assert len(list(scratch.iterdir())) == 1
        assert [entry.name for entry in tmp_path.iterdir()] == ["scratch"]
    assert list(scratch.iterdir()) == []
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_killed_writer_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = tmp_path / "file"
    child = subprocess.run(
        [sys.executable, "-c", DIES_WHILE_WRITING, str(path), str(scratch)], check=False, timeout=60
    )
    assert child.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len(list(scratch.iterdir())) == 1


def test_errors_that_are_not_the_operating_systems_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), store_errors(tmp_path):
        raise ValueError("mine")
