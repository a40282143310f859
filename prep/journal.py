"""What is committed, and where to go on.

A shard is committed when its journal file is durable: `_job/journal/<task>-<index>.json` holds the shard's
row of the table, the position after it and the counts of the ledger. Nothing else is needed for a restart.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prep.catalog.commit import atomic_write
from prep.catalog.errors import IntegrityError
from prep.catalog.names import JOB_FOLDER
from prep.catalog.shard import checksum_file
from prep.pipeline.messages import Position

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

VERSION = 1

NEEDED = {"index", "path", "file_bytes", "checksum"}
"""Columns of a shard's row without which nothing can be compared."""


@dataclass
class Entry:
    """One committed shard.

    Attributes:
        row: its row of `shards.parquet`.
        position: the place in the document stream after it.
        ledger: counts over its documents and the records left out among them, by name.
        sources: for each source file touched, its index, records read and records left out.
    """

    row: dict[str, Any]
    position: Position
    ledger: dict[str, int]
    sources: list[list[int]] = field(default_factory=list)

    def to_json(self) -> bytes:
        document = {
            "version": VERSION,
            "shard": self.row,
            "next": self.position._asdict(),
            "ledger": self.ledger,
            "sources": self.sources,
        }
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_json(cls, path: Path, data: bytes) -> Entry:
        try:
            document = json.loads(data)
            if document["version"] != VERSION:
                raise IntegrityError(
                    f"{path}: field version: expected {VERSION}, found {document['version']!r}: "
                    "finish the job with the version of tokenloom that began it, or use --restart"
                )
            row = dict(document["shard"])
            if not row.keys() >= NEEDED:
                raise ValueError(f"shard: expected {', '.join(sorted(NEEDED))}")  # noqa: TRY301
            position = Position(**document["next"])
            return cls(row, position, dict(document["ledger"]), list(document["sources"]))
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{path}: damaged journal file: {error}; use --restart") from error


class Journal:
    """The journal of one task in an output folder.

    Args:
        folder: the output folder.
        name: the dataset's name, with which shard files begin.
        task: the task's number.
    """

    def __init__(self, folder: Path, name: str, task: int = 0) -> None:
        self.folder = folder
        self.task = task
        self._name = name
        self._journal = folder / JOB_FOLDER / "journal"
        self._rejects = folder / JOB_FOLDER / "rejects"
        self.scratch = folder / JOB_FOLDER / "tmp"

    def prepare(self) -> None:
        """Make the folders."""
        for folder in (self._journal, self._rejects, self.scratch, self.folder / "shards"):
            folder.mkdir(parents=True, exist_ok=True)

    def shard_path(self, index: int) -> Path:
        return self.folder / "shards" / f"{self._name}-{self.task:05}-{index:06}.arrow"

    def entry_path(self, index: int) -> Path:
        return self._journal / f"{self.task:05}-{index:06}.json"

    def rejects_path(self, index: int) -> Path:
        return self._rejects / f"{self.task:05}-{index:06}.jsonl"

    def commit(self, entry: Entry, rejects: bytes) -> None:
        """Commit a shard whose file is durable: rejects first, the journal file last."""
        index = entry.row["index"]
        if rejects:
            with atomic_write(self.rejects_path(index), scratch=self.scratch) as stream:
                stream.write(rejects)
        with atomic_write(self.entry_path(index), scratch=self.scratch) as stream:
            stream.write(entry.to_json())

    def recover(self, *, verify_all: bool = False) -> list[Entry]:
        """The committed shards, after dropping whatever is not committed.

        The listing is compared with the journal by name and size, and the last shard by checksum.

        Args:
            verify_all: compare every shard by checksum.

        Raises:
            IntegrityError: a committed shard is missing or damaged.
        """
        entries = self._load()
        for entry in entries if verify_all else entries[-1:]:
            refuse_damage(self.folder / entry.row["path"], entry.row, checksum=True)
        self._drop_uncommitted(len(entries))
        return entries

    def _load(self) -> list[Entry]:
        numbers = sorted(self._numbers(self._journal, ".json"))
        if numbers != list(range(len(numbers))):
            missing = sorted(set(range(max(numbers))) - set(numbers))
            raise IntegrityError(f"{self.entry_path(missing[0])}: missing journal file; use --restart")
        sizes = {path.name: path.stat().st_size for path in (self.folder / "shards").glob("*.arrow")}
        entries = []
        for index in numbers:
            path = self.entry_path(index)
            entry = Entry.from_json(path, path.read_bytes())
            _refuse_size(self.shard_path(index), entry.row, sizes.get(self.shard_path(index).name))
            entries.append(entry)
        return entries

    def _drop_uncommitted(self, count: int) -> None:
        for index in self._numbers(self.folder / "shards", ".arrow", prefix=f"{self._name}-"):
            if index >= count:
                log.info("dropping %s, which was not committed", self.shard_path(index))
                self.shard_path(index).unlink()
        for index in self._numbers(self._rejects, ".jsonl"):
            if index >= count:
                self.rejects_path(index).unlink()

    def _numbers(self, folder: Path, suffix: str, prefix: str = "") -> list[int]:
        """The indices of this task's files in a folder."""
        begin = f"{prefix}{self.task:05}-"
        names = [path.name for path in folder.glob(f"{begin}*{suffix}")]
        digits = [name[len(begin) : -len(suffix)] for name in names]
        return [int(number) for number in digits if number.isdigit()]


def refuse_damage(path: Path, row: Mapping[str, Any], *, checksum: bool) -> None:
    """Compare a shard with its row of the table, by size, and by checksum if asked for.

    Raises:
        IntegrityError: it is missing or differs.
    """
    _refuse_size(path, row, path.stat().st_size if path.is_file() else None)
    found = checksum_file(path)[1] if checksum else row["checksum"]
    if found != row["checksum"]:
        raise IntegrityError(
            f"{path}: checksum: expected {row['checksum']:016x}, found {found:016x}: "
            "the file is damaged; put it back, or use --restart"
        )


def _refuse_size(path: Path, row: Mapping[str, Any], found: int | None) -> None:
    if found != row["file_bytes"]:
        raise IntegrityError(
            f"{path}: committed with {row['file_bytes']:,} bytes, found "
            f"{'no file' if found is None else f'{found:,} bytes'}; put it back, or use --restart"
        )


def add_counts(total: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add named counts to a ledger."""
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count
