"""The end of a job: tables and header from the journal, and the summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from prep.catalog.catalog import TOTALS, checksum_of, write_header, write_tables
from prep.catalog.errors import ConfigError, IntegrityError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import JOB_FOLDER, TOKENIZER
from prep.catalog.schema import SOURCE_TABLE
from prep.journal import add_counts
from prep.pipeline.writer import FLAG_NAMES
from prep.readers.block import REASONS
from prep.tokenizers.definition import SETTINGS, TokenizerDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from prep.journal import Entry
    from prep.resolve import Resolved


@dataclass
class Summary:
    """What a job left behind.

    Attributes:
        path: the catalog's folder.
        worked: False if the job was finished before.
        ledger: records read, written and rejected by reason.
        tokenizer: the tokenizer's fingerprint.
        resumed_shards: shards that earlier runs had committed.
        backend: name and version, and why it was taken; empty if nothing was done.
        checked_documents, lossy_documents: sampled documents that were compared with the reference in this
            run, and those of them whose text does not come back from their ids.
    """

    name: str
    path: str
    worked: bool
    documents: int
    tokens: int
    text_bytes: int
    file_bytes: int
    shards: int
    sources: int
    ledger: dict[str, Any]
    token_dtype: str
    tokenizer: str
    seconds: float = 0.0
    resumed_shards: int = 0
    backend: str = ""
    checked_documents: int = 0
    lossy_documents: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def summarize(folder: Path, header: Mapping[str, Any], *, worked: bool) -> Summary:
    """The summary of a finished catalog."""
    totals = header["totals"]
    return Summary(
        name=header["name"],
        path=str(folder),
        worked=worked,
        documents=totals["num_documents"],
        tokens=totals["num_tokens"],
        text_bytes=totals["text_bytes"],
        file_bytes=totals["file_bytes"],
        shards=totals["num_shards"],
        sources=totals["num_sources"],
        ledger=header["ledger"],
        token_dtype=header["token_dtype"],
        tokenizer=header["tokenizer"]["fingerprint"],
    )


def write_catalog(
    folder: Path, resolved: Resolved, entries: Sequence[Entry], scratch: Path
) -> dict[str, Any]:
    """Write the tables and, last, the header; `scratch` is for temporary files."""
    sources, ledger = _sources(resolved, entries), _ledger(entries)
    totals = {name: sum(entry.row[name] for entry in entries) for name in TOTALS}
    header: dict[str, Any] = {
        "name": resolved.config.name,
        "kind": "tokens",
        "data_format": "arrow",
        "totals": {**totals, "num_shards": len(entries), "num_sources": len(resolved.files)},
        "token_dtype": resolved.layout.token_dtype,
        "tokenizer": {
            "fingerprint": resolved.tokenizer,
            "vocab_size": resolved.definition.largest_id + 1,
            "control_ids": resolved.definition.control_ids,
            "bos_id": resolved.boundaries.bos_id,
            "eos_id": resolved.boundaries.eos_id,
        },
        "identity": resolved.identity,
        "identity_fingerprint": fingerprint(resolved.identity),
        "ledger": ledger,
        "tokenloom_version": version("tokenloom"),
    }
    header["checksums"] = {TOKENIZER: checksum_of(resolved.definition.canonical)} | write_tables(
        folder, [entry.row for entry in entries], sources, scratch
    )
    write_header(folder, header, scratch)
    return header


def _sources(resolved: Resolved, entries: Sequence[Entry]) -> pa.Table:
    counts = [[0, 0] for _ in resolved.files]
    for entry in entries:
        for file, read, rejected in entry.sources:
            counts[file][0] += read
            counts[file][1] += rejected
    columns = {
        "name": [file.name for file in resolved.files],
        "size": [file.size for file in resolved.files],
        "records_read": [read for read, _ in counts],
        "records_rejected": [rejected for _, rejected in counts],
    }
    return pa.table(columns, schema=SOURCE_TABLE)


def _ledger(entries: Sequence[Entry]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for entry in entries:
        add_counts(counts, entry.ledger)
    rejected = {reason: counts.get(reason, 0) for reason in REASONS}
    written = counts.get("written", 0)
    return {
        "read": written + sum(rejected.values()),
        "written": written,
        "rejected": rejected,
        **{name: counts.get(name, 0) for name in FLAG_NAMES.values()},
    }


def stored_definition(folder: Path) -> TokenizerDefinition:
    """The tokenizer that lies beside a catalog.

    Raises:
        IntegrityError: it is missing or damaged.
    """
    file, settings = folder / TOKENIZER, folder / JOB_FOLDER / SETTINGS
    try:
        beside = settings.read_bytes() if settings.exists() else None
        return TokenizerDefinition.from_bytes(file.read_bytes(), beside, str(file))
    except (OSError, ConfigError) as error:
        raise IntegrityError(f"{file}: the catalog's tokenizer cannot be read: {error}") from error
