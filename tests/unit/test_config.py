"""The configuration: what is accepted, and what is said about what is not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from prep.catalog.errors import ConfigError
from prep.catalog.names import RESERVED_COLUMNS
from prep.config import JobConfig, load_config, parse_size, validate

MINIMAL: dict[str, Any] = {
    "name": "corpus",
    "source": {"paths": ["data/*.jsonl"]},
    "tokenizer": {"path": "tokenizer.json"},
    "output": {"path": "out"},
}
YAML = """\
name: corpus
source: {paths: "data/*.jsonl"}
tokenizer: {path: tokenizer.json}
output: {path: out}
"""


def tree(field: str, value: Any) -> dict[str, Any]:
    """The minimal configuration with one field set, by its dotted path."""
    made = copy.deepcopy(MINIMAL)
    *sections, last = field.split(".")
    node = made
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = value
    return made


def refusal(field: str, value: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        validate(tree(field, value))
    return str(raised.value)


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_the_documented_ones() -> None:
    config = validate(MINIMAL)
    assert config.source.format == "auto"
    assert (config.source.text_field, config.source.id_field) == ("text", None)
    assert (config.source.keep_fields, config.source.text_mode) == ({}, "file")
    assert (config.tokenizer.backend, config.tokenizer.add_bos, config.tokenizer.add_eos) == (
        "auto",
        "auto",
        True,
    )
    assert config.tokenizer.control_tokens_in_text == "text"
    assert (config.processing.workers, config.processing.readers) == ("auto", "auto")
    assert (config.processing.shuffle.files, config.processing.shuffle.documents) == (False, "none")
    assert (config.output.shard_size, config.output.compression) == (256_000_000, "none")
    assert config.output.dtype == "auto"


def test_a_bad_record_or_text_stops_the_job_unless_the_configuration_says_otherwise() -> None:
    processing = validate(MINIMAL).processing
    assert (processing.on_bad_record, processing.on_bad_text) == ("error", "error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("256MB", 256_000_000),
        ("256 mb", 256_000_000),
        (" 8MiB ", 8 << 20),
        ("1.5kb", 1500),
        ("0.5GiB", 1 << 29),
        ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_take_decimal_and_binary_units(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "5XB", "1e6", "1,000", "5MB5", "0x10", "five"])
def test_a_size_that_is_none_is_refused_with_the_units_and_the_value(text: str) -> None:
    message = refusal("output.shard_size", text)
    assert "output.shard_size" in message
    assert "MiB" in message
    assert repr(text) in message


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("source.format", "csv", "parquet"),
        ("source.text_mode", "word", "'line'"),
        ("source.keep_fields", {"a": "int32"}, "int64"),
        ("source.keep_fields", "a", "list of names"),
        ("source.keep_fields", [["a"]], "list of names"),
        ("source.keep_fields", [1], "list of names"),
        ("source.paths", [], "at least 1 item"),
        ("processing.shuffle", "block", "block_documents"),
        ("tokenizer.backend", "sentencepiece", "fastokens"),
        ("tokenizer.add_bos", "yes", "auto, true or false"),
        ("tokenizer.control_tokens_in_text", "drop", "'error'"),
        ("processing.workers", -1, "0 to 4096"),
        ("processing.workers", "all", "auto"),
        ("processing.workers", True, "whole number"),
        ("processing.workers", 1.0, "whole number"),
        ("processing.readers", 0, "1 to 1024"),
        ("processing.on_bad_record", "warn", "'skip'"),
        ("processing.on_bad_text", "ignore", "'replace'"),
        ("processing.on_empty", "error", "'keep'"),
        ("processing.max_record_bytes", "3GB", "1073741824"),
        ("processing.batch_bytes", 0, "1"),
        ("processing.min_document_bytes", -1, "0"),
        ("processing.shuffle.documents", "global", "'block'"),
        ("processing.shuffle.seed", -1, "0"),
        ("processing.shuffle.block_documents", 0, "1"),
        ("output.shard_size", 1, "1024"),
        ("output.compression", "gzip", "'zstd'"),
        ("output.dtype", "int64", "'uint16'"),
        ("tokenizer.eos_token", 5, "string"),
    ],
)
def test_an_unusable_value_is_refused_with_field_value_and_what_is_allowed(
    field: str, value: Any, allowed: str
) -> None:
    message = refusal(field, value)
    assert field in message
    assert allowed in message
    shown = value["a"] if isinstance(value, dict) else value
    expected = parse_size(shown) if field.endswith("_bytes") else shown
    assert repr(expected) in message or repr(shown) in message


@pytest.mark.parametrize("field", ["processing.batch_bytes", "processing.shuffle.seed", "output.shard_size"])
def test_a_truth_value_is_no_number(field: str) -> None:
    assert field in refusal(field, True)


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("nmae", "name"),
        ("sources.paths", "source"),
        ("source.text_fields", "text_field"),
        ("tokenizer.eos_tokens", "eos_token"),
        ("tokenizer.train.vocabsize", "vocab_size"),
        ("processing.on_bad_records", "on_bad_record"),
        ("processing.shuffle.block_document", "block_documents"),
        ("output.shardsize", "shard_size"),
    ],
)
def test_a_misspelled_name_is_refused_with_the_nearest_known_one(field: str, nearest: str) -> None:
    message = refusal(field, 1)
    assert f"did you mean {nearest!r}?" in message


def test_an_unknown_name_that_resembles_none_lists_the_known_ones() -> None:
    message = refusal("output.quux", 1)
    assert "did you mean" not in message
    assert "compression, dtype, path, shard_size" in message


@pytest.mark.parametrize("missing", ["name", "source", "tokenizer", "output"])
def test_a_missing_section_is_named(missing: str) -> None:
    given = {name: value for name, value in MINIMAL.items() if name != missing}
    with pytest.raises(ConfigError, match=f"{missing}: this field is required"):
        validate(given)


def test_every_mistake_is_listed_not_only_the_first() -> None:
    made = tree("output.compression", "gzip")
    made["source"]["text_mode"] = "word"
    with pytest.raises(ConfigError) as raised:
        validate(made, "job.yaml")
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("job.yaml: ") for line in lines)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "-x", "a b", "a\n", "ü", "x" * 101])
def test_a_name_that_makes_no_file_name_is_refused(name: str) -> None:
    assert "name" in refusal("name", name)


@pytest.mark.parametrize("path", ["s3://bucket/out", "memory://out", "https://host/out"])
def test_output_elsewhere_than_on_a_local_disk_is_refused_with_the_reason(path: str) -> None:
    message = refusal("output.path", path)
    assert "not supported yet" in message
    assert path in message


def test_an_empty_output_path_is_refused() -> None:
    assert "output.path" in refusal("output.path", "")


def test_a_file_url_is_a_local_output() -> None:
    assert validate(tree("output.path", "file:///tmp/x")).output.path == "file:///tmp/x"


def test_no_path_at_all_is_refused() -> None:
    assert "source.paths" in refusal("source.paths", [])


def test_one_path_may_be_given_without_a_list() -> None:
    assert validate(tree("source.paths", "a.jsonl")).source.paths == ["a.jsonl"]


@pytest.mark.parametrize("column", RESERVED_COLUMNS)
def test_a_kept_field_may_not_take_the_name_of_a_column(column: str) -> None:
    assert column in refusal("source.keep_fields", [column])


def test_kept_fields_are_names_or_names_with_types() -> None:
    assert validate(tree("source.keep_fields", ["b", "a"])).source.keep_fields == {"b": None, "a": None}
    typed = validate(tree("source.keep_fields", {"n": "int64", "s": None})).source.keep_fields
    assert typed == {"n": "int64", "s": None}


def test_a_kept_field_named_twice_is_refused() -> None:
    assert "twice" in refusal("source.keep_fields", ["a", "a"])


@pytest.mark.parametrize("tokenizer", [{}, {"path": "t.json", "train": {}}])
def test_exactly_one_origin_of_the_tokenizer_is_wanted(tokenizer: dict[str, Any]) -> None:
    message = refusal("tokenizer", tokenizer)
    assert "path" in message
    assert "train" in message


def test_secrets_of_the_store_are_not_printable() -> None:
    config = validate(tree("source.storage_options", {"secret": "hunter2"}))
    assert "hunter2" not in str(config.printable())
    assert config.printable()["source"]["storage_options"] == {"secret": "***"}


def test_a_file_is_read_and_overrides_are_applied_in_order(tmp_path: Path) -> None:
    overrides = [
        "processing.workers=3",
        "processing.shuffle={files: true, seed: 7}",
        "source.paths=[a.jsonl, b.jsonl]",
        "processing.workers=4",
        "tokenizer.eos_token=a=b",
    ]
    config = load_config(write(tmp_path, YAML), overrides)
    assert config.processing.workers == 4
    assert (config.processing.shuffle.files, config.processing.shuffle.seed) == (True, 7)
    assert config.source.paths == ["a.jsonl", "b.jsonl"]
    assert config.tokenizer.eos_token == "a=b"


def test_an_override_reaches_into_a_section_that_the_file_leaves_empty(tmp_path: Path) -> None:
    path = write(tmp_path, YAML + "processing:\n")
    assert load_config(path, ["processing.workers=1"]).processing.workers == 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("processing.workers", "section.field=value"),
        ("=3", "section.field=value"),
        ("a..b=3", "section.field=value"),
        ("name.first=3", "is a value, not a section"),
        ("source.paths=[a", "not valid YAML"),
        ("procesing.workers=1", "did you mean 'processing'?"),
    ],
)
def test_an_unusable_override_is_refused(tmp_path: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, YAML), [override])
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "name: [",
        "name: a\nname: b\n",
        "source: {paths: a, paths: b}",
        "a: *nowhere",
        "x: !!python/object/apply:os.system ['true']",
        "? [a]\n: b",
        "- a\n- b\n",
        "just text",
        "",
        "\x00",
    ],
)
def test_a_file_that_is_no_mapping_of_sections_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(path) in str(raised.value)


def test_a_key_that_is_given_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'name' is given twice"):
        load_config(write(tmp_path, "name: a\nname: b\n"))


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(path)


def test_a_file_that_is_not_there_or_is_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(path)


def test_mistakes_name_the_file_that_they_are_in(tmp_path: Path) -> None:
    path = write(tmp_path, YAML + "processing: {on_empty: drop}\n")
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value) == f"{path}: processing.on_empty: expected 'skip' or 'keep', found 'drop'"


LOADED_ELSEWHERE = {"mixture.yaml", "stream.yaml"}
"""No jobs: tests/unit/jobs/test_mixture.py, tests/docs/test_readme.py."""


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted((Path(__file__).parents[2] / "configs").iterdir())
        if path.name not in LOADED_ELSEWHERE
    ],
    ids=lambda path: path.name,
)
def test_every_configuration_that_is_shipped_can_be_loaded(path: Path) -> None:
    assert load_config(path).name == path.stem


def test_every_field_of_the_configuration_has_a_line_in_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    fields = {
        f"{section}.{name}"
        for section in ("source", "tokenizer", "processing", "output")
        for name in JobConfig.model_fields[section].annotation.model_fields
    }
    assert {field for field in fields if field.partition(".")[2] not in readme} == set()
