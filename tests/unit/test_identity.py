"""What decides a job's bytes is fingerprinted; what does not may change."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from prep.catalog.errors import IntegrityError, RefusedError
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import JOB_FOLDER
from prep.config import JobConfig
from prep.identity import (
    SHOWN_CHANGES,
    refuse_changes,
    refuse_other_ids,
    refuse_source_changes,
    tokenizer_fingerprint,
)
from prep.record import JobRecord
from prep.resolve import resolve
from prep.sources.listing import SourceFile, list_sources
from prep.tokenizers.definition import TokenizerDefinition, load_definition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import MakeConfig, WriteJsonl

EXECUTION = {
    "source.paths",
    "source.storage_options",
    "tokenizer.path",
    "tokenizer.backend",
    "processing.workers",
    "processing.readers",
    "processing.batch_bytes",
    "processing.download_bytes",
    "output.path",
}
"""Fields that change how the work is done, and no byte of the output."""

DECIDED = {"tokenizer.add_bos", "tokenizer.bos_token", "tokenizer.add_eos", "tokenizer.eos_token"}
"""Fields of which the identity holds what they lead to: the ids of BOS and EOS."""

PERMISSIONS = {"tokenizer.eos_override"}
"""Fields that allow a value and are none themselves."""

OTHER: dict[str, Any] = {
    "name": "other",
    "source.format": "jsonl",
    "source.text_field": "body",
    "source.id_field": "id",
    "source.keep_fields": {"n": "int64"},
    "source.text_mode": "line",
    "tokenizer.add_bos": True,
    "tokenizer.add_eos": False,
    "tokenizer.control_tokens_in_text": "token",
    "processing.shuffle.files": True,
    "processing.shuffle.documents": "block",
    "processing.shuffle.block_documents": 7,
    "processing.shuffle.block_bytes": 12345,
    "processing.shuffle.seed": 1,
    "processing.on_bad_record": "skip",
    "processing.on_bad_text": "skip",
    "processing.on_empty": "keep",
    "processing.max_record_bytes": 1000,
    "processing.min_document_bytes": 1,
    "processing.max_document_bytes": 1000,
    "output.shard_size": 2048,
    "output.compression": "zstd",
    "output.dtype": "uint32",
}
"""For each identity field a value that is not the default."""


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every field of the configuration, by its dotted path."""
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if sections:
            yield from leaves(sections[0], f"{before}{name}.")
        else:
            yield f"{before}{name}"


def nested(field: str, value: Any) -> dict[str, Any]:
    for name in reversed(field.split(".")):
        value = {name: value}
    return dict(value)


def identity(config: JobConfig) -> dict[str, Any]:
    definition = load_definition(config.tokenizer.path or "")
    return resolve(config, definition, list_sources(config)).identity


@pytest.fixture
def source(tmp_path: Path, write_jsonl: WriteJsonl) -> Path:
    return write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "x"}])


def test_every_field_is_either_identity_or_execution() -> None:
    known = EXECUTION | DECIDED | PERMISSIONS | set(OTHER)
    training = {field for field in leaves(JobConfig) if field.startswith("tokenizer.train.")}
    assert set(leaves(JobConfig)) - training == known
    assert not EXECUTION & set(OTHER)


@pytest.mark.parametrize("field", sorted(OTHER))
def test_each_identity_field_changes_the_fingerprint_and_is_named(
    make_config: MakeConfig, source: Path, field: str
) -> None:
    value = nested(field, OTHER[field])
    if "bos" in field:
        value["tokenizer"]["bos_token"] = "<|endoftext|>"
    before, after = identity(make_config(source)), identity(make_config(source, **value))
    assert fingerprint(before) != fingerprint(after)
    changed = {name for name in before if before[name] != after[name]}
    expected = {"tokenizer.add_bos": "tokenizer.bos_id", "tokenizer.add_eos": "tokenizer.eos_id"}
    assert changed == {expected.get(field, field)}


@pytest.mark.parametrize(
    "sections",
    [
        {"processing": {"workers": 3, "readers": 2, "batch_bytes": 1000, "download_bytes": 10}},
        {"tokenizer": {"backend": "tokenizers"}},
        {"tokenizer": {"eos_token": "<|endoftext|>", "eos_override": True}},
        {"output": {"path": "elsewhere"}},
        {"output": {"dtype": "uint16"}},
        {"source": {"storage_options": {"key": "value"}}},
        {"source": {"keep_fields": []}},
    ],
)
def test_fields_that_change_no_byte_leave_the_fingerprint(
    make_config: MakeConfig, source: Path, sections: dict[str, Any]
) -> None:
    assert identity(make_config(source, **sections)) == identity(make_config(source))


def test_the_order_of_kept_fields_is_part_of_the_identity(make_config: MakeConfig, source: Path) -> None:
    made = {
        fingerprint(identity(make_config(source, source={"keep_fields": names})))
        for names in (["a", "b"], ["b", "a"])
    }
    assert len(made) == 2  # it is the order of the shards' columns


def test_moved_sources_are_the_same_sources(make_config: MakeConfig, source: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved" / "deeper" / "a.jsonl"
    moved.parent.mkdir(parents=True)
    shutil.copy(source, moved)
    assert identity(make_config(source)) == identity(make_config(moved))


def test_a_source_of_another_name_size_or_place_in_the_order_is_another_source(
    make_config: MakeConfig, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    first = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    second = write_jsonl(tmp_path / "b.jsonl", [{"text": "x"}])
    prints = {
        identity(make_config(paths))["sources.fingerprint"]
        for paths in ([first], [second], [first, second], [second, first])
    }
    write_jsonl(first, [{"text": "xx"}])
    prints.add(identity(make_config(first))["sources.fingerprint"])
    assert len(prints) == 5


def test_a_changed_tokenizer_is_another_job(
    make_config: MakeConfig, source: Path, tokenizer_json: Path, tmp_path: Path
) -> None:
    """Case Q35: nothing of tokenizer A is reused for B, and padding alone makes no B."""
    text = tokenizer_json.read_text(encoding="utf-8")
    padded = tmp_path / "padded.json"
    padded.write_text(text.replace('"padding": null', '"padding": {"strategy": {"Fixed": 8}}'))
    if '"padding":null' in text:
        padded.write_text(text.replace('"padding":null', '"padding":{"strategy":{"Fixed":8}}'))
    other = tmp_path / "other.json"
    other.write_text(text.replace('"add_prefix_space": false', '"add_prefix_space": true'), encoding="utf-8")
    if '"add_prefix_space":false' in text:
        other.write_text(text.replace('"add_prefix_space":false', '"add_prefix_space":true'))
    assert padded.read_text(encoding="utf-8") != text != other.read_text(encoding="utf-8")
    a, again, b = (
        identity(make_config(source, tokenizer={"path": str(path)}))
        for path in (tokenizer_json, padded, other)
    )
    assert a == again
    assert {name for name in a if a[name] != b[name]} == {"tokenizer"}


def test_the_fingerprint_of_a_tokenizer_takes_the_ids_of_the_probes() -> None:
    """Case Q34: a library that gives other ids is another tokenizer."""
    definition = TokenizerDefinition.from_bytes(b'{"model": {"vocab": {"a": 0}}}')
    ids = [[1, 2], [3]]
    assert tokenizer_fingerprint(definition, ids) == tokenizer_fingerprint(definition, [(1, 2), (3,)])
    for others in ([[1, 2], [4]], [[1], [2, 3]], [[1, 2]]):
        assert tokenizer_fingerprint(definition, ids) != tokenizer_fingerprint(definition, others)


def test_equal_identities_are_not_refused(tmp_path: Path) -> None:
    refuse_changes(tmp_path, {"a": 1, "b": None}, {"b": None, "a": 1})


def test_a_refusal_names_each_field_with_both_values_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as raised:
        refuse_changes(tmp_path, {"a": 1, "b": "x", "same": 0}, {"a": 2, "c": None, "same": 0, "d": 5})
    message = str(raised.value)
    assert "a: began with 1, now 2" in message
    assert "b: began with 'x', now None" in message
    assert "d: began with None, now 5" in message
    assert "same" not in message
    assert "--restart" in message
    assert str(tmp_path) in message


def test_changed_sources_are_listed_by_what_became_of_them(tmp_path: Path) -> None:
    before = [["a", 1], ["b", 2], ["c", 3]]
    with pytest.raises(RefusedError) as raised:
        refuse_source_changes(tmp_path, before, [["b", 5], ["c", 3], ["d", 4]])
    message = str(raised.value)
    assert "removed: a" in message
    assert "changed: b: 2 bytes, now 5" in message
    assert "added: d" in message
    assert ": c" not in message


def test_the_same_sources_in_another_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="another order"):
        refuse_source_changes(tmp_path, [["a", 1], ["b", 2]], [["b", 2], ["a", 1]])
    refuse_source_changes(tmp_path, [["a", 1], ["b", 2]], [["a", 1], ["b", 2]])


def test_a_long_list_of_changes_is_shortened_and_counted(tmp_path: Path) -> None:
    after = [[f"f{number}", 1] for number in range(SHOWN_CHANGES + 5)]
    with pytest.raises(RefusedError, match="and 5 more"):
        refuse_source_changes(tmp_path, [], after)


def test_other_ids_for_the_same_tokenizer_name_the_first_string(tmp_path: Path) -> None:
    """Case Q34."""
    refuse_other_ids(["x", "y"], [[1], [2]], [[1], [2]])
    with pytest.raises(RefusedError) as raised:
        refuse_other_ids(["x", "yy", "zz"], [[1], [2, 3], [4]], [[1], [2, 9], [5]])
    assert "'yy': from token 1" in str(raised.value)
    assert "'zz'" not in str(raised.value)
    assert tmp_path.exists()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / JOB_FOLDER / "tmp").mkdir(parents=True)
    record = JobRecord(tmp_path)
    assert not record.exists()
    content = {"identity": {"ü": [1, None]}, "tokenizer_content": "x", "probe_ids": [[1]]}
    record.write(content)
    record.write_sources(
        [SourceFile("ü\n.jsonl", 5, "/x/ü\n.jsonl", "jsonl"), SourceFile("b", 0, "/b", "txt")]
    )
    assert record.exists()
    assert record.read() == content
    assert record.read_sources() == [["ü\n.jsonl", 5], ["b", 0]]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]\n", b'{"name": "a"}\n'])
def test_a_damaged_record_is_an_integrity_error_with_a_way_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / JOB_FOLDER).mkdir()
    record = JobRecord(tmp_path)
    (tmp_path / JOB_FOLDER / "sources.jsonl").write_bytes(content)
    if content:
        with pytest.raises(IntegrityError, match="--restart"):
            record.read_sources()
    if content != b'{"name": "a"}\n':
        (tmp_path / JOB_FOLDER / "job.json").write_bytes(content)
        with pytest.raises(IntegrityError, match="--restart"):
            record.read()
