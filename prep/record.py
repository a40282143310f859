"""What a job began with: `_job/job.json` and `_job/sources.jsonl`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from prep.catalog.commit import atomic_write
from prep.catalog.errors import IntegrityError
from prep.catalog.names import JOB_FOLDER
from prep.sources.locations import public_location

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from prep.sources.listing import SourceFile

RECORDED = {"identity", "tokenizer_content", "probe_ids"}
"""What the record of a job has to hold."""


class JobRecord:
    """`_job/job.json` and `_job/sources.jsonl`: what a job began with."""

    def __init__(self, folder: Path) -> None:
        self._scratch = folder / JOB_FOLDER / "tmp"
        self.path = folder / JOB_FOLDER / "job.json"
        self._sources = folder / JOB_FOLDER / "sources.jsonl"

    def exists(self) -> bool:
        return self.path.exists()

    def refused_backends(self) -> list[str]:
        """Backends that contradicted the reference in this job."""
        return list(self.read().get("refused_backends", [])) if self.exists() else []

    def read(self) -> dict[str, Any]:
        try:
            record = json.loads(self.path.read_bytes())
        except (OSError, ValueError) as error:
            raise IntegrityError(f"{self.path}: cannot be read: {error}; use --restart") from error
        if not isinstance(record, dict) or not record.keys() >= RECORDED:
            raise IntegrityError(f"{self.path}: expected {', '.join(sorted(RECORDED))}; use --restart")
        return record

    def write(self, record: Mapping[str, Any]) -> None:
        with atomic_write(self.path, scratch=self._scratch) as stream:
            stream.write(json.dumps(record, indent=1, sort_keys=True).encode() + b"\n")

    def read_sources(self) -> list[list[Any]]:
        """Name and size of each source file."""
        try:
            lines = self._sources.read_bytes().splitlines()
            return [[entry["name"], entry["size"]] for entry in map(json.loads, lines)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{self._sources}: cannot be read: {error}; use --restart") from error

    def write_sources(self, files: Sequence[SourceFile]) -> None:
        with atomic_write(self._sources, scratch=self._scratch) as stream:
            for file in files:
                entry = {**file._asdict(), "location": public_location(file.location)}
                stream.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
