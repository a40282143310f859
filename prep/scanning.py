"""Scanning many files on many processes: what a task is, and how the results are put together."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from prep.catalog.errors import InputError
from prep.catalog.shard import checksum_file
from prep.pool import run_tasks
from prep.readers import compression_of
from prep.readers.scan import FileScan, joined, line_start, scan_file, scan_range

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

RANGE_BYTES = 128 << 20
"""A plain JSONL file larger than this is scanned in ranges, where there are processes to share them."""


@dataclass(frozen=True)
class BuildProgress:
    """How far a scan is: `bytes` and `files` of `total_bytes` and `total_files`, and the rows found."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int
    rows: int


class ScanTask(NamedTuple):
    """A file to scan, or a range of one, or a file whose checksum alone is wanted."""

    path: str
    format: str
    text_field: str
    start: int
    stop: int
    part: Literal["file", "range", "checksum"] = "file"

    def __str__(self) -> str:
        return f"{self.path}, bytes {self.start:,} to {self.stop:,}"


def scan_files(
    files: Sequence[tuple[str, int]],
    fmt: str,
    text_field: str,
    *,
    workers: int,
    on_progress: Callable[[BuildProgress], object] = lambda _: None,
) -> Generator[tuple[int, FileScan], None, None]:
    """The number of each file and its scan, as they are ready.

    Args:
        files: path and size of each.
        fmt: "jsonl", "parquet" or "arrow".
        text_field: the field whose length is counted.
        workers: child processes; 0: none.
        on_progress: called after each task.

    Raises:
        InputError: a file or a row of it is damaged, or a file changes meanwhile.
    """
    state = _Assembly(len(files), sum(size for _, size in files))
    for position, (path, size) in enumerate(files):
        whole = ScanTask(path, fmt, text_field, 0, size)
        state.add(position, _cut(whole) if workers > 1 else [whole])
    with closing(run_tasks(state.tasks, scan_task, workers)) as results:
        for number, scan in results:
            complete = state.take(number, scan)
            if complete is not None:
                yield complete
            on_progress(state.progress())


def _cut(whole: ScanTask) -> list[ScanTask]:
    """The tasks of a file: itself, or its ranges in order and its checksum."""
    path, size = whole.path, whole.stop
    if whole.format != "jsonl" or compression_of(path) or size <= RANGE_BYTES:
        return [whole]
    cuts = [line_start(path, position, size) for position in range(RANGE_BYTES, size, RANGE_BYTES)]
    edges = sorted({0, *cuts, size})
    ranges = [whole._replace(start=start, stop=stop, part="range") for start, stop in pairwise(edges)]
    return [*ranges, whole._replace(part="checksum")]


@dataclass
class _Assembly:
    """Which tasks make up a file, and what is known of it so far."""

    total_files: int
    total_bytes: int
    tasks: list[ScanTask] = field(default_factory=list)
    _done: int = 0
    _files: list[int] = field(default_factory=list)
    _parts: dict[int, dict[int, FileScan]] = field(default_factory=dict)
    _wanted: dict[int, int] = field(default_factory=dict)
    _bytes: int = 0
    _rows: int = 0

    def add(self, position: int, tasks: Sequence[ScanTask]) -> None:
        self.tasks += tasks
        self._files += [position] * len(tasks)
        self._wanted[position] = len(tasks)
        self._parts[position] = {}

    def take(self, number: int, scan: FileScan) -> tuple[int, FileScan] | None:
        """Take note of a task's result; returns its file and the file's scan when that is complete."""
        task, position = self.tasks[number], self._files[number]
        parts = self._parts[position]
        parts[number] = scan
        if task.part != "checksum":
            self._bytes += task.stop - task.start
            self._rows += scan.rows
        if len(parts) < self._wanted[position]:
            return None
        self._done += 1
        *scans, last = [parts[key] for key in sorted(self._parts.pop(position))]
        return position, joined(scans, last.checksum) if scans else last

    def progress(self) -> BuildProgress:
        return BuildProgress(self._done, self.total_files, self._bytes, self.total_bytes, self._rows)


def scan_task(task: ScanTask) -> FileScan:
    """What a child process does with a task.

    Raises:
        InputError: the file is damaged, or not as it was when it was listed.
    """
    before = _version(task)
    if task.part == "checksum":
        scan = FileScan(0, 0, 0, checksum=checksum_file(Path(task.path))[1])
    elif task.part == "range":
        scan = scan_range(task.path, task.start, task.stop, task.text_field)
    else:
        scan = scan_file(task.path, task.format, task.text_field)
    if _version(task) != before:
        raise InputError(f"{task.path}: it was changed while it was read")
    return scan


def _version(task: ScanTask) -> tuple[int, int]:
    try:
        status = Path(task.path).stat()
    except OSError as error:
        raise InputError(f"{task.path}: cannot be read: {error.strerror}") from error
    if task.part != "range" and status.st_size != task.stop:
        raise InputError(
            f"{task.path}: expected {task.stop:,} bytes as when it was listed, found {status.st_size:,}"
        )
    return status.st_size, status.st_mtime_ns
