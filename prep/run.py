"""The work of one run of a job: from the configuration to committed shards and the catalog."""

from __future__ import annotations

import logging
import platform
import shutil
import time
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

from prep.catalog.catalog import Catalog
from prep.catalog.columns import flat_values
from prep.catalog.commit import atomic_write, store_errors
from prep.catalog.errors import InputError, RefusedError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import JOB_FOLDER, SHARDS, SOURCES, TOKENIZER
from prep.catalog.schema import FORMAT_VERSION
from prep.finish import Summary, stored_definition, summarize, write_catalog
from prep.identity import refuse_changes, refuse_other_ids, refuse_source_changes
from prep.job import Progress
from prep.journal import Journal, refuse_damage
from prep.pipeline.check import EncoderContradictedError, SampleCheck
from prep.pipeline.messages import Position
from prep.pipeline.stream import BlockStream
from prep.pipeline.writer import ShardSettings, Writer
from prep.readers.block import REASONS
from prep.record import JobRecord
from prep.resolve import Resolved, resolve
from prep.sources.listing import list_sources
from prep.tokenizers.definition import SETTINGS, TokenizerDefinition, dump_settings, load_definition
from prep.train import train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from prep.config import JobConfig
    from prep.journal import Entry
    from prep.pipeline.reorder import PlacedBlock
    from prep.pipeline.runner import Runner, RunnerStart
    from prep.sources.listing import SourceFile

log = logging.getLogger(__name__)


def finished_summary(config: JobConfig, folder: Path, *, verify_all: bool) -> Summary:
    """A finished catalog's summary, if it is this job's and its shards are there.

    Args:
        config: the job.
        folder: its output.
        verify_all: compare every shard's checksum, not only its size.

    Raises:
        RefusedError: the folder holds the catalog of another job.
        IntegrityError: a shard is missing or damaged.
    """
    catalog = Catalog.open(folder)
    definition = (
        stored_definition(folder) if config.tokenizer.train else load_definition(config.tokenizer.path or "")
    )
    files = list_sources(config)
    recorded = zip(
        *(catalog.sources([name]).column(name).to_pylist() for name in ("name", "size")), strict=True
    )
    refuse_source_changes(folder, list(map(list, recorded)), [[file.name, file.size] for file in files])
    refuse_changes(folder, catalog.header["identity"], resolve(config, definition, files).identity)
    for row in catalog.shards(["path", "file_bytes", "checksum"]).to_pylist():
        refuse_damage(catalog.file(row["path"]), row, checksum=verify_all)
    return summarize(folder, catalog.header, worked=False)


class JobRun:
    """The work of one run."""

    def __init__(
        self,
        config: JobConfig,
        folder: Path,
        start: RunnerStart,
        *,
        verify_all: bool,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._config = config
        self._folder = folder
        self._start = start
        self._verify_all = verify_all
        self._on_progress = on_progress
        self._record = JobRecord(folder)
        self._journal = Journal(folder, config.name)
        self._scratch = folder / JOB_FOLDER / "tmp"

    def run(self, definition: TokenizerDefinition | None) -> Summary:
        """Work until the catalog is there.

        Args:
            definition: the tokenizer; None: one that is trained on the sources.
        """
        shutil.rmtree(self._scratch, ignore_errors=True)
        with store_errors(self._folder):
            self._journal.prepare()
        files = list_sources(self._config)
        if definition is None:
            definition = self._trained_definition(files)
            self._start.load(definition)
        resolved = resolve(self._config, definition, files)
        entries = self._pin(resolved)
        self._start.expect_streams(resolved)
        runner = self._start.confirm(resolved.policy_ids)
        backend = f"{self._start.backend} {self._start.version} ({self._start.reason})"
        log.info("backend: %s", backend)
        self._write_record(resolved, backend)
        self._keep_tokenizer(resolved)
        runner.configure(resolved.settings(self._start.backend))
        resumed = len(entries)
        try:
            check = self._write_shards(resolved, runner, entries)
        except EncoderContradictedError:
            self._write_record(resolved, backend, refused_backends=[self._start.backend])
            raise
        header = write_catalog(self._folder, resolved, entries, self._scratch)
        shutil.rmtree(self._scratch, ignore_errors=True)
        summary = summarize(self._folder, header, worked=True)
        summary.resumed_shards, summary.backend = resumed, backend
        if check is not None:
            summary.checked_documents = check.checked_documents
            summary.lossy_documents = check.lossy_documents
        return summary

    def _trained_definition(self, files: Sequence[SourceFile]) -> TokenizerDefinition:
        """The tokenizer that the job made when it began, or makes now."""
        train = self._config.tokenizer.train
        assert train is not None
        if self._record.exists() and (self._folder / TOKENIZER).exists():
            return stored_definition(self._folder)
        log.info("training a tokenizer of %d ids on the sources", train.vocab_size)
        data = train_tokenizer(self._config, train, files, self._scratch)
        return TokenizerDefinition.from_bytes(data, None, str(self._folder / TOKENIZER))

    def _pin(self, resolved: Resolved) -> list[Entry]:
        """Compare with what the job began with, or make that now; returns what is committed.

        Raises:
            RefusedError: sources or identity fields differ.
            IntegrityError: what is committed is damaged.
        """
        now = [[file.name, file.size] for file in resolved.files]
        if self._record.exists():
            record = self._record.read()
            if record["tokenizer_content"] == fingerprint(resolved.definition.canonical.decode()):
                refuse_other_ids(resolved.probes, record["probe_ids"], resolved.plain_ids)
            refuse_source_changes(self._folder, self._record.read_sources(), now)
            refuse_changes(self._folder, record["identity"], resolved.identity)
            return self._journal.recover(verify_all=self._verify_all)
        self._refuse_files_of_others()
        with atomic_write(self._folder / JOB_FOLDER / SETTINGS, scratch=self._scratch) as stream:
            stream.write(dump_settings(resolved.definition))
        self._record.write_sources(resolved.files)
        return []

    def _refuse_files_of_others(self) -> None:
        """Begin a job only where it overwrites nothing: its record is the first thing that it writes.

        Raises:
            RefusedError: the folder holds files with the names of a job's.
        """
        folders = (self._folder / "shards", self._folder / JOB_FOLDER / "journal")
        if any(path for folder in folders for path in folder.iterdir()):
            raise RefusedError(
                f"{self._folder}: holds shards or their journal, and the record of the job that wrote them "
                f"({JOB_FOLDER}/job.json) is missing; give another output.path, or --restart to remove them"
            )
        for name in (TOKENIZER, SHARDS, SOURCES):
            if (self._folder / name).exists():
                raise RefusedError(
                    f"{self._folder / name}: no job wrote this file, and this one would overwrite it; give "
                    "another output.path, or move the file away"
                )

    def _keep_tokenizer(self, resolved: Resolved) -> None:
        """See that the tokenizer lies beside the shards."""
        path = self._folder / TOKENIZER
        if not path.exists() or path.read_bytes() != resolved.definition.canonical:
            with atomic_write(path, scratch=self._scratch) as stream:
                stream.write(resolved.definition.canonical)

    def _write_record(self, resolved: Resolved, backend: str, refused_backends: Sequence[str] = ()) -> None:
        refused = self._record.refused_backends()
        libraries = ("tokenloom", "tokenizers", "pyarrow", "numpy", "orjson")
        self._record.write(
            {
                "identity": resolved.identity,
                "fingerprint": fingerprint(resolved.identity),
                "tokenizer_content": fingerprint(resolved.definition.canonical.decode()),
                "probe_ids": resolved.plain_ids,
                "refused_backends": sorted({*refused, *refused_backends}),
                "execution": {
                    "backend": backend,
                    "config": self._config.printable(),
                    "host": platform.node(),
                    "python": platform.python_version(),
                    "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "libraries": {name: version(name) for name in libraries},
                },
            }
        )

    def _write_shards(self, resolved: Resolved, runner: Runner, entries: list[Entry]) -> SampleCheck | None:
        """Write what is not committed; appends to `entries` what is committed now."""
        end = Position(file=len(resolved.files))
        begin = entries[-1].position if entries else Position()
        if begin.file >= end.file:
            return None
        if entries:
            log.info(
                "continuing after %d committed shards, at %s, row %d",
                len(entries),
                resolved.files[begin.file].name,
                begin.next_row + 1,
            )
        settings = ShardSettings(
            schema=resolved.layout.schema(),
            metadata={
                "format_version": str(FORMAT_VERSION),
                "tokenizer": resolved.tokenizer,
                "job": fingerprint(resolved.identity),
            },
            shard_size=self._config.output.shard_size,
            compression=None
            if self._config.output.compression == "none"
            else self._config.output.compression,
            boundaries=resolved.boundaries,
            names=[file.name for file in resolved.files],
        )
        progress = _Progress(resolved.files, entries, self._on_progress)
        with (
            Writer(self._journal, settings, len(entries), end) as writer,
            BlockStream(resolved, runner, begin, self._scratch, lambda: writer.next_index) as stream,
        ):
            for block in stream.blocks():
                writer.write(block)
                progress.advance(block, stream.reached, len(entries) + len(writer.committed))
            writer.finish()
            entries += writer.committed
            progress.finish(len(entries))
            if not entries:
                raise InputError(_nothing(resolved, writer))
            return stream.check


def _nothing(resolved: Resolved, writer: Writer) -> str:
    """What to say when all was read and nothing is a document."""
    counts = {name: count for name, count in writer.ledger().items() if name in REASONS}
    why = ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "the files hold no records"
    lines = writer.rejects()
    first = f"; the first: {lines[0].decode().strip()}" if lines else ""
    return f"{len(resolved.files)} files, 0 documents: {why}{first}"


class _Progress:
    """Keeps a job's Progress and reports it."""

    def __init__(
        self, files: Sequence[SourceFile], entries: Sequence[Entry], report: Callable[[Progress], None]
    ) -> None:
        self._before = [0, *accumulate(file.size for file in files)]
        self._report = report
        self._state = Progress(total_files=len(files), total_bytes=self._before[-1], shards=len(entries))
        for entry in entries:
            self._state.documents += entry.row["num_documents"]
            self._state.tokens += entry.row["num_tokens"]
            self._state.text_bytes += entry.row["text_bytes"]

    def advance(self, block: PlacedBlock, reached: tuple[int, int], shards: int) -> None:
        state, tokens = self._state, block.documents.column("tokens")
        fresh = len(flat_values(tokens))
        state.documents += block.documents.num_rows
        state.tokens += fresh
        state.fresh_tokens += fresh
        state.text_bytes += int(block.documents.column("text_bytes").to_numpy().sum(dtype="int64"))
        state.files, state.shards = reached[0], shards
        state.source_bytes = min(self._before[reached[0]] + reached[1], self._before[reached[0] + 1])
        self._report(state)

    def finish(self, shards: int) -> None:
        """All is read and committed; some readers do not tell how far they are."""
        state = self._state
        state.files, state.source_bytes, state.shards = state.total_files, state.total_bytes, shards
        self._report(state)
