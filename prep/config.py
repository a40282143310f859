"""The configuration of a job: one YAML file, validated before any work.

Every field has its meaning and default here. Fields are of two kinds (see `identity_fields` of the job):
those that decide the output's bytes, and those that only decide how the work is done.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, Strict, model_validator

from prep.catalog.names import RESERVED_COLUMNS
from prep.catalog.settings import Section, read_yaml, validated
from prep.sources.locations import public_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SIZE_EXPECTED = "expected bytes as a number or with a unit B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
MAX_RECORD_LIMIT = 2**30
MAX_BATCH_LIMIT = 2**28


def parse_size(value: Any) -> Any:
    """Bytes from a number or a text such as "256MB" (powers of ten) or "8MiB" (powers of two)."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(SIZE_EXPECTED)  # noqa: TRY004 - pydantic reports ValueError
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if not match or match[2].lower() not in UNITS:
        raise ValueError(SIZE_EXPECTED)
    return round(float(match[1]) * UNITS[match[2].lower()])


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_mapping(value: Any) -> Any:
    """Kept fields given as a list of names become names without a declared type."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if len(set(value)) != len(value):
            raise ValueError("a field is named twice")
        return dict.fromkeys(value)
    if not isinstance(value, dict):
        raise ValueError("expected a list of names, or a mapping of name to type")  # noqa: TRY004 - see above
    return value


def _auto_or_count(low: int, high: int) -> PlainValidator:
    def check(value: Any) -> Any:
        if value == "auto" or (type(value) is int and low <= value <= high):
            return value
        raise ValueError(f"expected auto or a whole number from {low} to {high}")

    return PlainValidator(check)


def _auto_or_bool(value: Any) -> Any:
    if value == "auto" or isinstance(value, bool):
        return value
    raise ValueError("expected auto, true or false")


Size = Annotated[int, BeforeValidator(parse_size)]
KeptType = Literal["string", "int64", "float64", "bool"]


class SourceConfig(Section):
    """What to read."""

    paths: Annotated[list[str], BeforeValidator(_as_list)] = Field(min_length=1)
    """Files, globs and fsspec URLs; `{stdlib}` stands for the running Python's standard library."""
    format: Literal["auto", "jsonl", "json", "parquet", "arrow", "txt"] = "auto"
    """By default each file's format is told by its suffix."""
    text_field: str = "text"
    id_field: str | None = None
    keep_fields: Annotated[dict[str, KeptType | None], BeforeValidator(_as_mapping)] = Field(
        default_factory=dict
    )
    """Further fields to keep as columns: a list of names, or a mapping of name to type."""
    text_mode: Literal["file", "line"] = "file"
    """For text files: a document is the whole file, or a line."""
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the fsspec file system of remote paths; never printed."""

    @model_validator(mode="after")
    def _columns_are_free(self) -> SourceConfig:
        for name in self.keep_fields:
            if name in RESERVED_COLUMNS:
                raise ValueError(f"keep_fields: {name!r} is the name of a column of every shard")
        return self


class TrainConfig(Section):
    """A byte-level BPE made from the job's own text before it is tokenized."""

    vocab_size: Annotated[int, Strict()] = Field(default=8192, ge=257, le=1_000_000)
    max_bytes: Size = Field(default=32_000_000, gt=0)
    """How much text to look at, from the first file on."""
    eos_token: str = "<|endoftext|>"


class TokenizerConfig(Section):
    """What makes ids of text."""

    path: str | None = None
    """A tokenizer.json, a folder that holds one, or the id of a hub repository."""
    train: TrainConfig | None = None
    """Instead of `path`: train a small tokenizer on the sources."""
    backend: Literal["auto", "tokenizers", "fastokens"] = "auto"
    add_bos: Annotated[Literal["auto"] | bool, PlainValidator(_auto_or_bool)] = "auto"
    add_eos: bool = True
    bos_token: str | None = None
    eos_token: str | None = None
    eos_override: bool = False
    """Accept an `eos_token` that the tokenizer's own files contradict."""
    control_tokens_in_text: Literal["text", "token", "error"] = "text"
    """Text that spells a control token: ordinary text, the token itself, or an error."""

    @model_validator(mode="after")
    def _one_origin(self) -> TokenizerConfig:
        if (self.path is None) == (self.train is None):
            raise ValueError("give either path (a tokenizer.json, its folder, a hub id) or train")
        return self


class ShuffleConfig(Section):
    """In which order documents are written; a function of the seed and the sources alone."""

    files: bool = False
    documents: Literal["none", "block"] = "none"
    block_documents: Annotated[int, Strict()] = Field(default=65_536, ge=1)
    block_bytes: Size = Field(default=64_000_000, ge=1)
    seed: Annotated[int, Strict()] = Field(default=0, ge=0, lt=2**63)


class ProcessingConfig(Section):
    """How the work is done, and what becomes of records that are not as they should be."""

    workers: Annotated[Literal["auto"] | int, _auto_or_count(0, 4096)] = "auto"
    """Tokenizer processes; 0: every stage in this process, one after the other."""
    readers: Annotated[Literal["auto"] | int, _auto_or_count(1, 1024)] = "auto"
    """Reader processes for files that cannot be split (.gz, .zst, very large row groups)."""
    batch_bytes: Size = Field(default=4 << 20, ge=1, le=MAX_BATCH_LIMIT)
    download_bytes: Size = Field(default=4 * 10**9, ge=1)
    """How much of the remote files may lie in `_job/tmp` at a time."""
    shuffle: ShuffleConfig = ShuffleConfig()
    on_bad_record: Literal["error", "skip"] = "error"
    """Not JSON, no object, no text field, a field of the wrong type, larger than the limit."""
    on_bad_text: Literal["error", "replace", "skip"] = "error"
    """Bytes that are not UTF-8, lone surrogates; replacing puts U+FFFD in their place."""
    on_empty: Literal["skip", "keep"] = "skip"
    max_record_bytes: Size = Field(default=256 << 20, ge=1, le=MAX_RECORD_LIMIT)
    min_document_bytes: Size = Field(default=0, ge=0)
    max_document_bytes: Size | None = Field(default=None, ge=1)


class OutputConfig(Section):
    """Where the shards go and what they look like."""

    path: str = Field(min_length=1)
    shard_size: Size = Field(default=256 * 10**6, ge=1024, le=8 * 2**30)
    compression: Literal["none", "zstd"] = "none"
    dtype: Literal["auto", "uint16", "uint32"] = "auto"

    @model_validator(mode="after")
    def _local(self) -> OutputConfig:
        if "://" in self.path and not self.path.startswith("file://"):
            raise ValueError(
                f"path: {self.path!r}: output to object stores is not supported yet; "
                "give a folder on a local disk and copy the finished catalog"
            )
        return self


class JobConfig(Section):
    """A whole job."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Names the dataset and begins the shards' file names."""
    source: SourceConfig
    tokenizer: TokenizerConfig
    processing: ProcessingConfig = ProcessingConfig()
    output: OutputConfig

    def printable(self) -> dict[str, Any]:
        """The resolved configuration with whatever may be secret hidden."""
        shown = self.model_dump(mode="json")
        shown["source"]["paths"] = [public_location(path) for path in self.source.paths]
        if shown["source"]["storage_options"]:
            shown["source"]["storage_options"] = dict.fromkeys(shown["source"]["storage_options"], "***")
        return shown


def load_config(path: Path | str, overrides: Iterable[str] = ()) -> JobConfig:
    """Read a job's YAML file and apply overrides of the form `a.b=value` (the value is YAML).

    Raises:
        ConfigError: the file cannot be read, or a field is unknown or has an unusable value; the message
            names the file, the field's path, the value and what is allowed.
    """
    return validate(read_yaml(path, "name, source, tokenizer, output", overrides), str(path))


def validate(tree: Mapping[str, Any], origin: str = "configuration") -> JobConfig:
    """A JobConfig from plain data; see `load_config` for the errors."""
    return validated(JobConfig, tree, origin)
