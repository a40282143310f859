"""What decides a job's bytes, and what to say when it is not what it was.

A job's fields are of two kinds. Identity fields decide the output's bytes: they are fingerprinted, stand in
the catalog's header, and may not change on resume. Execution fields (workers, readers, block size, backend
and library versions, paths, modification times) may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prep.catalog.errors import RefusedError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.schema import type_name
from prep.tokenizers.probes import first_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from prep.catalog.schema import ShardLayout
    from prep.config import JobConfig
    from prep.sources.listing import SourceFile
    from prep.tokenizers.boundaries import Boundaries
    from prep.tokenizers.definition import TokenizerDefinition

SHOWN_CHANGES = 10
ADVICE = (
    "Run with the fields as they were to continue, with --restart to begin anew in this folder, "
    "or with another output.path"
)


def tokenizer_fingerprint(definition: TokenizerDefinition, probes: Sequence[Sequence[int]]) -> str:
    """Of a tokenizer's canonical JSON and the ids that it gives to the probes."""
    return fingerprint([definition.canonical.decode(), [list(ids) for ids in probes]])


def identity_of(
    config: JobConfig,
    layout: ShardLayout,
    boundaries: Boundaries,
    tokenizer: str,
    files: Sequence[SourceFile],
) -> dict[str, Any]:
    """The identity fields of a job, as the header shows them."""
    source, processing, output = config.source, config.processing, config.output
    shuffle = processing.shuffle
    return {
        "name": config.name,
        "source.format": source.format,
        "source.text_field": source.text_field,
        "source.id_field": source.id_field,
        "source.keep_fields": [[name, type_name(kind)] for name, kind in layout.kept],
        "source.text_mode": source.text_mode,
        "tokenizer": tokenizer,
        "tokenizer.train": config.tokenizer.train.model_dump() if config.tokenizer.train else None,
        "tokenizer.bos_id": boundaries.bos_id,
        "tokenizer.eos_id": boundaries.eos_id,
        "tokenizer.control_tokens_in_text": config.tokenizer.control_tokens_in_text,
        "processing.shuffle.files": shuffle.files,
        "processing.shuffle.documents": shuffle.documents,
        "processing.shuffle.block_documents": shuffle.block_documents,
        "processing.shuffle.block_bytes": shuffle.block_bytes,
        "processing.shuffle.seed": shuffle.seed,
        "processing.on_bad_record": processing.on_bad_record,
        "processing.on_bad_text": processing.on_bad_text,
        "processing.on_empty": processing.on_empty,
        "processing.max_record_bytes": processing.max_record_bytes,
        "processing.min_document_bytes": processing.min_document_bytes,
        "processing.max_document_bytes": processing.max_document_bytes,
        "output.shard_size": output.shard_size,
        "output.compression": output.compression,
        "output.dtype": layout.token_dtype,
        "sources.files": len(files),
        "sources.bytes": sum(file.size for file in files),
        "sources.fingerprint": fingerprint([[file.name, file.size] for file in files]),
    }


def refuse_changes(folder: Path, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare identity fields.

    Raises:
        RefusedError: they differ; the message names each field with both values.
    """
    lines = [
        f"  {name}: began with {recorded.get(name)!r}, now {now.get(name)!r}"
        for name in sorted({*recorded, *now})
        if recorded.get(name) != now.get(name)
    ]
    if lines:
        raise RefusedError(
            f"{folder}: this folder holds a job with other fields:\n" + "\n".join(lines) + f"\n{ADVICE}"
        )


def refuse_source_changes(
    folder: Path, recorded: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]
) -> None:
    """Compare source lists as (name, size).

    Raises:
        RefusedError: they differ; the message lists what was added, removed, changed or moved.
    """
    if [list(entry) for entry in recorded] == [list(entry) for entry in now]:
        return
    before, after = dict(map(tuple, recorded)), dict(map(tuple, now))
    changes = [f"removed: {name}" for name in before if name not in after]
    changes += [f"added: {name}" for name in after if name not in before]
    changes += [
        f"changed: {name}: {before[name]:,} bytes, now {after[name]:,}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    changes = changes or ["the same files in another order"]
    more = f"\n  and {len(changes) - SHOWN_CHANGES} more" if len(changes) > SHOWN_CHANGES else ""
    raise RefusedError(
        f"{folder}: the sources are not those that this job began with:\n"
        + "\n".join(f"  {change}" for change in changes[:SHOWN_CHANGES])
        + f"{more}\n{ADVICE}"
    )


def refuse_other_ids(
    probes: Sequence[str], recorded: Sequence[Sequence[int]], now: Sequence[Sequence[int]]
) -> None:
    """Compare the ids that a tokenizer gives to the probes with those that it gave when the job began.

    Raises:
        RefusedError: a library gives other ids for the same tokenizer; names the first string.
    """
    if len(recorded) != len(now):
        return
    difference = first_difference(probes, recorded, now)
    if difference:
        raise RefusedError(
            "the same tokenizer gives other ids than when this job began (another version of the tokenizers "
            f"library?): {difference}. Use the version that began it, or --restart"
        )
