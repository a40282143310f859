"""Output that cannot be written: one clear error with the path, and nothing that is committed is lost."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.faults.conftest import Corpora, MakeJob
    from tests.faults.harness import Command, Job

PAGE = 4096
SHARD_PARTS = ("shards/", "_job/tmp/shard", "_job/journal/", "_job/rejects/")
"""Where writing fails once shards are written."""


class SmallDisk:
    """A file system in memory of a size that can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self, size: int, options: str = "") -> None:
        flags = ",".join(filter(None, [options, f"size={size}"]))
        run = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", flags, "tokenloom-test", str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            pytest.skip(f"this system does not let a test mount a small disk: {run.stderr.strip()}")

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.folder)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, size: int, options: str = "") -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir()
    disk = SmallDisk(folder)
    disk.mount(size, options)
    try:
        yield disk
    finally:
        disk.unmount()


def check_store_error(command: Command, job: Job, reason: str, *parts: str) -> None:
    """One error, which names a path of the output (with one of these parts) and says what to do."""
    errors = [line for line in command.errors.splitlines() if line.startswith("tokenloom: error: ")]
    assert "Traceback" not in command.errors, command.errors
    assert len(errors) == 1, command.errors
    assert str(job.output) in errors[0]
    assert reason in errors[0]
    assert "continue" in errors[0]
    path = errors[0].removeprefix("tokenloom: error: ").partition(":")[0]
    assert not parts or any(part in path for part in parts), f"the error is not about {path}"


def test_a_full_disk_stops_the_job_and_with_room_it_goes_on(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job("plain")
    with small_disk(tmp_path / "disk", 900_000) as disk:
        job.output = disk.folder / "output"
        command = job.run(status=5)
        check_store_error(command, job, "No space left on device", *SHARD_PARTS)
        job.check_interrupted()
        before = job.committed()
        assert len(before) >= 2
        # Still full: the same error again, and nothing is lost by trying.
        check_store_error(job.run(status=5), job, "No space left on device", *SHARD_PARTS, "job.json")
        assert job.committed().items() >= before.items()
        disk.resize(100 << 20)
        job.run()
        assert job.committed().items() >= before.items()
        job.check_finished()


def test_wherever_the_room_ends_the_error_is_one_and_clear(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job("small", workers=0)
    for pages in (4, 20, 28, 30, 33, 36):
        with small_disk(tmp_path / f"disk-{pages}", pages * PAGE) as disk:
            job.output = disk.folder / "output"
            check_store_error(job.run(status=5), job, "No space left on device", *SHARD_PARTS, ".json")
            disk.resize(100 << 20)
            job.run()
            job.check_finished()


def test_room_that_ends_inside_a_shard_of_several_record_batches(
    make_job: MakeJob, corpora: Corpora, harness: ModuleType, tmp_path: Path
) -> None:
    job = make_job("plain")
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "large.jsonl").write_bytes((corpora.make("plain") / "a.jsonl").read_bytes() * 6)
    tree = harness.read_tree(job.config)
    tree["source"]["paths"] = [str(sources / "*")]
    tree["output"]["shard_size"] = "1GB"
    tree["tokenizer"]["backend"] = "fastokens"
    job = harness.Job(tmp_path, tree)
    with small_disk(tmp_path / "disk", 6 << 20) as disk:
        job.output = disk.folder / "output"
        check_store_error(job.run(status=5), job, "No space left on device", *SHARD_PARTS)
        job.check_interrupted()
        disk.resize(1 << 30)
        job.run()
        job.tool("catalog", "verify", str(job.output))


def test_a_limit_on_file_sizes_stops_the_job_and_without_it_it_goes_on(
    make_job: MakeJob, corpora: Corpora, harness: ModuleType, tmp_path: Path
) -> None:
    """Works without root: a document that is larger than a shard has a shard of its own, over the limit."""
    job = make_job("small", workers=0)
    sources = tmp_path / "sources"
    sources.mkdir()
    lines = (corpora.make("small") / "0.jsonl").read_bytes()
    large = b'{"id": "large", "text": "' + b"word and " * 80_000 + b'"}\n'
    (sources / "a.jsonl").write_bytes(lines + large + lines)
    tree = harness.read_tree(job.config)
    tree["source"]["paths"] = [str(sources / "*")]
    expected = harness.Job(tmp_path, tree)
    expected.output = tmp_path / "expected"
    expected.run()
    job = harness.Job(tmp_path, tree, expected.result())
    command = job.run(status=5, file_limit=150_000)
    check_store_error(command, job, "File too large", *SHARD_PARTS)
    job.check_interrupted()
    before = job.committed()
    assert before
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_a_folder_that_must_not_be_written(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job("small", workers=0)
    if os.geteuid() == 0:  # permissions do not stop root, a read-only file system does
        with small_disk(tmp_path / "disk", 1 << 20, "ro") as disk:
            job.output = disk.folder / "output"
            check_store_error(job.run(status=5), job, "Read-only file system")
        return
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    job.output = folder / "output"
    check_store_error(job.run(status=5), job, "Permission denied")


def test_an_output_path_that_lies_below_a_file(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job("small", workers=0)
    (tmp_path / "file").write_text("no folder", encoding="ascii")
    job.output = tmp_path / "file/output"
    check_store_error(job.run(status=5), job, "Not a directory")
