"""From a configuration to everything that is decided before work begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from prep.catalog.errors import ConfigError
from prep.catalog.schema import DECLARED_TYPES, ShardLayout
from prep.identity import identity_of, tokenizer_fingerprint
from prep.pipeline.settings import StageSettings
from prep.readers import arrow, parquet
from prep.readers.block import ReadOptions
from prep.readers.tabular import kept_type
from prep.tokenizers.backends import REFERENCE
from prep.tokenizers.boundaries import resolve_boundaries
from prep.tokenizers.definition import UINT16_LIMIT
from prep.tokenizers.probes import probe_ids, probe_strings
from prep.tokenizers.reference import ReferenceEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prep.config import JobConfig
    from prep.sources.listing import SourceFile
    from prep.tokenizers.boundaries import Boundaries
    from prep.tokenizers.definition import TokenizerDefinition

LARGE_DOCUMENT = 4 << 20
"""Documents above this size go through the reference encoder one at a time across processes."""


@dataclass(frozen=True)
class Resolved:
    """A job with every "auto" decided.

    Attributes:
        config: the configuration.
        files: the source list in reading order.
        definition: the tokenizer.
        reference: the reference backend with the job's control-token policy.
        boundaries: BOS and EOS.
        layout: the shard's columns.
        read: columns and record policies.
        probes: the strings on which backends are compared.
        policy_ids: their ids under the job's control-token policy.
        plain_ids: their ids with control tokens as text, which the fingerprint takes.
        tokenizer: the tokenizer's fingerprint.
        identity: the identity fields.
    """

    config: JobConfig
    files: Sequence[SourceFile]
    definition: TokenizerDefinition
    reference: ReferenceEncoder
    boundaries: Boundaries
    layout: ShardLayout
    read: ReadOptions
    probes: Sequence[str]
    policy_ids: Sequence[Sequence[int]]
    plain_ids: Sequence[Sequence[int]]
    tokenizer: str
    identity: dict[str, Any]

    def settings(self, backend: str) -> StageSettings:
        """What the stages need to know, for a backend."""
        processing, is_reference = self.config.processing, backend == REFERENCE
        return StageSettings(
            read=self.read,
            layout=self.layout,
            boundaries=self.boundaries,
            control_tokens=tuple(self.definition.control_ids),
            control_policy=self.config.tokenizer.control_tokens_in_text,
            on_empty=processing.on_empty,
            min_bytes=processing.min_document_bytes,
            max_bytes=processing.max_document_bytes,
            batch_bytes=processing.batch_bytes,
            large_bytes=LARGE_DOCUMENT if is_reference else None,
        )


def resolve(config: JobConfig, definition: TokenizerDefinition, files: Sequence[SourceFile]) -> Resolved:
    """Decide what the configuration leaves open.

    Raises:
        ConfigError: BOS or EOS cannot be told, a forced dtype does not fit, the tokenizer is unusable.
        InputError: a kept field cannot be kept.
    """
    tokenizer = config.tokenizer
    boundaries = resolve_boundaries(
        definition,
        add_bos=tokenizer.add_bos,
        add_eos=tokenizer.add_eos,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        eos_override=tokenizer.eos_override,
    )
    kept = _kept(config, files)
    layout = ShardLayout(_dtype(config, definition, boundaries), config.source.id_field is not None, kept)
    reference = ReferenceEncoder(definition.encoding_json)
    reference.refuse_other_ids(definition)
    probes = probe_strings(list(definition.control_ids))
    plain_ids = policy_ids = probe_ids(reference, probes)
    if tokenizer.control_tokens_in_text == "token":
        reference.match_control_tokens(match=True)
        policy_ids = probe_ids(reference, probes)
    fingerprint = tokenizer_fingerprint(definition, plain_ids)
    return Resolved(
        config=config,
        files=files,
        definition=definition,
        reference=reference,
        boundaries=boundaries,
        layout=layout,
        read=_read_options(config, kept),
        probes=probes,
        policy_ids=policy_ids,
        plain_ids=plain_ids,
        tokenizer=fingerprint,
        identity=identity_of(config, layout, boundaries, fingerprint, files),
    )


def _read_options(config: JobConfig, kept: tuple[tuple[str, Any], ...]) -> ReadOptions:
    source, processing = config.source, config.processing
    return ReadOptions(
        text_field=source.text_field,
        id_field=source.id_field,
        kept=kept,
        declared=frozenset(name for name, kind in source.keep_fields.items() if kind),
        text_mode=source.text_mode,
        on_bad_record=processing.on_bad_record,
        on_bad_text=processing.on_bad_text,
        max_record_bytes=processing.max_record_bytes,
    )


def _kept(config: JobConfig, files: Sequence[SourceFile]) -> tuple[tuple[str, Any], ...]:
    """The kept fields with their types: declared, else the first file's, else string."""
    declared = {name: DECLARED_TYPES.get(kind or "") for name, kind in config.source.keep_fields.items()}
    undeclared = [name for name, kind in declared.items() if kind is None]
    found: dict[str, Any] = {}
    first = files[0]
    if undeclared and first.format in ("parquet", "arrow"):
        if not first.is_local:
            raise ConfigError(
                f"source.keep_fields: declare a type for {', '.join(undeclared)} (name: type); "
                "for remote files it is not looked up"
            )
        schema = (parquet if first.format == "parquet" else arrow).schema_of(first.location)
        for name in undeclared:
            position = schema.get_field_index(name)
            if position < 0:
                raise ConfigError(
                    f"{first.location}: source.keep_fields {name!r} is no column; "
                    f"found: {', '.join(schema.names)}"
                )
            found[name] = kept_type(first.location, name, schema.field(position).type)
    return tuple((name, kind or found.get(name, pa.string())) for name, kind in declared.items())


def _dtype(config: JobConfig, definition: TokenizerDefinition, boundaries: Boundaries) -> str:
    largest = max(definition.largest_id, boundaries.bos_id or 0, boundaries.eos_id or 0)
    wanted = config.output.dtype
    if wanted == "uint16" and largest > UINT16_LIMIT:
        raise ConfigError(
            f"output.dtype: uint16 holds ids up to {UINT16_LIMIT:,}, and this tokenizer's largest is "
            f"{largest:,}; set auto or uint32"
        )
    if wanted != "auto":
        return wanted
    return "uint16" if largest <= UINT16_LIMIT else "uint32"
