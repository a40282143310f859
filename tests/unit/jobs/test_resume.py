"""What a second run does in the folder of a first one: continue, do nothing, or refuse and say why."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeConfig, WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]
    Unfinished = Callable[..., Path]

IDENTITY: list[tuple[str, dict[str, Any]]] = [
    ("source.text_field", {"source": {"text_field": "id"}}),
    ("source.id_field", {"source": {"id_field": "id"}}),
    ("source.keep_fields", {"source": {"keep_fields": ["n"]}}),
    ("processing.shuffle.documents", {"processing": {"shuffle": {"documents": "block"}}}),
    ("processing.on_bad_record", {"processing": {"on_bad_record": "skip"}}),
    ("processing.min_document_bytes", {"processing": {"min_document_bytes": 3}}),
    ("output.shard_size", {"output": {"shard_size": 4096}}),
    ("output.compression", {"output": {"compression": "zstd"}}),
    ("tokenizer.eos_id", {"tokenizer": {"add_eos": False}}),
    ("tokenizer.control_tokens_in_text", {"tokenizer": {"control_tokens_in_text": "token"}}),
]


def catalog_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "_job" not in path.parts
    }


@pytest.fixture
def undisturbed(make_config: MakeConfig, source: Path, tmp_path: Path) -> dict[str, bytes]:
    """The files of the same job, run without interruption into another folder."""
    run_job(make_config(source, output={"path": str(tmp_path / "undisturbed"), "shard_size": 1024}))
    return catalog_files(tmp_path / "undisturbed")


def test_an_unfinished_job_continues_and_gives_the_bytes_of_an_undisturbed_one(
    *,
    tokenloom: Command,
    unfinished: Unfinished,
    source: Path,
    tmp_path: Path,
    undisturbed: dict[str, bytes],
) -> None:
    job = unfinished(source, shards=3)
    committed = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "shards").iterdir()}
    assert len(committed) >= 3
    summary = json.loads(tokenloom("pretokenize", job, "--json").out)
    assert summary["worked"] is True
    assert summary["resumed_shards"] >= 3
    assert catalog_files(tmp_path / "out") == undisturbed
    kept = [path for path, time in committed.items() if path.stat().st_mtime_ns == time]
    assert len(kept) >= len(committed) - 1


def test_fields_that_change_no_byte_may_change_in_between(
    *,
    tokenloom: Command,
    unfinished: Unfinished,
    source: Path,
    tmp_path: Path,
    undisturbed: dict[str, bytes],
) -> None:
    job = unfinished(source)
    moved = shutil.move(source.parent, tmp_path / "moved")
    overrides = (
        "processing.workers=1",
        "processing.batch_bytes=3000",
        "tokenizer.backend=tokenizers",
        f"source.paths={moved}/a.jsonl",
    )
    result = tokenloom("pretokenize", job, *(part for field in overrides for part in ("--set", field)))
    assert result.code == 0
    assert catalog_files(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(("field", "sections"), IDENTITY)
def test_a_changed_field_is_refused_by_name_and_nothing_is_touched(
    *,
    tokenloom: Command,
    unfinished: Unfinished,
    job_file: MakeJob,
    source: Path,
    tmp_path: Path,
    field: str,
    sections: dict[str, Any],
) -> None:
    unfinished(source)
    before = catalog_files(tmp_path / "out")
    given = {"output": {"shard_size": 1024}}
    changed = {name: {**given.get(name, {}), **sections.get(name, {})} for name in (*given, *sections)}
    result = tokenloom("pretokenize", job_file(source, **changed))
    assert result.code == 4
    assert f"  {field}: began with " in result.err
    assert "--restart" in result.err
    assert catalog_files(tmp_path / "out") == before


@pytest.mark.parametrize("state", ["unfinished", "finished"])
def test_a_changed_source_is_refused_with_what_changed(
    *,
    tokenloom: Command,
    unfinished: Unfinished,
    tmp_path: Path,
    write_jsonl: WriteJsonl,
    state: str,
) -> None:
    for name in ("a", "b", "c"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [{"text": "some text of a document"}] * 60)
    job = unfinished(tmp_path / "in" / "*.jsonl")
    if state == "finished":
        assert tokenloom("pretokenize", job).code == 0
    (tmp_path / "in" / "a.jsonl").unlink()
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": "other"}])
    write_jsonl(tmp_path / "in" / "d.jsonl", [{"text": "new"}])
    result = tokenloom("pretokenize", job)
    assert result.code == 4
    for change in ("removed: a.jsonl", "changed: b.jsonl", "added: d.jsonl"):
        assert change in result.err


def test_a_finished_folder_refuses_another_job_unless_told_to_begin_anew(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    """Case Q29: a run without append into a folder that holds a catalog."""
    assert tokenloom("pretokenize", job_file(source)).code == 0
    before = catalog_files(tmp_path / "out")
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "x"}])
    result = tokenloom("pretokenize", job_file(other))
    assert result.code == 4
    assert "sources" in result.err
    assert catalog_files(tmp_path / "out") == before
    assert tokenloom("pretokenize", job_file(other), "--restart").code == 0
    assert catalog_files(tmp_path / "out") != before


def test_another_tokenizer_reuses_nothing_and_the_same_one_does_nothing_again(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tokenizer_json: Path, tmp_path: Path
) -> None:
    """Case Q35."""
    content = json.loads(tokenizer_json.read_bytes())
    other, padded = tmp_path / "other.json", tmp_path / "padded.json"
    other.write_text(json.dumps({**content, "normalizer": {"type": "NFC"}}), encoding="utf-8")
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    padded.write_text(json.dumps({**content, "padding": padding}), encoding="utf-8")
    assert tokenloom("pretokenize", job_file(source)).code == 0
    refused = tokenloom("pretokenize", job_file(source, tokenizer={"path": str(other)}))
    assert refused.code == 4
    assert "  tokenizer: began with " in refused.err
    again = tokenloom("pretokenize", job_file(source, tokenizer={"path": str(padded)}), "--json")
    assert json.loads(again.out)["worked"] is False


def test_a_library_that_gives_other_ids_now_is_refused_with_the_first_string(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path
) -> None:
    """Case Q34: the record holds the ids that the probes had when the job began."""
    job = unfinished(source)
    path = tmp_path / "out" / "_job" / "job.json"
    record = json.loads(path.read_bytes())
    place = next(number for number, ids in enumerate(record["probe_ids"]) if len(ids) > 3)
    expected = record["probe_ids"][place]
    record["probe_ids"][place] = [*expected[:2], 9999]
    path.write_text(json.dumps(record), encoding="utf-8")
    result = tokenloom("pretokenize", job)
    assert result.code == 4
    assert "gives other ids than when this job began" in result.err
    assert "from token 2 on expected" in result.err
    assert "9999" in result.err


def test_a_backend_that_contradicted_the_reference_is_not_taken_again(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path
) -> None:
    job = unfinished(source)
    path = tmp_path / "out" / "_job" / "job.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "refused_backends": ["fastokens"]}), encoding="utf-8")
    named = tokenloom("pretokenize", job, "--set", "tokenizer.backend=fastokens")
    assert named.code == 4
    assert "fastokens" in named.err
    summary = json.loads(tokenloom("pretokenize", job, "--json").out)
    assert summary["backend"].startswith("tokenizers ")


@pytest.mark.parametrize("name", ["job.json", "sources.jsonl", "journal/00000-000000.json"])
def test_a_damaged_job_folder_is_an_integrity_error_that_restart_mends(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path, name: str
) -> None:
    job = unfinished(source)
    path = tmp_path / "out" / "_job" / name
    path.write_bytes(path.read_bytes()[:-20])
    result = tokenloom("pretokenize", job)
    assert result.code == 4
    assert path.name in result.err
    assert "--restart" in result.err
    assert tokenloom("pretokenize", job, "--restart").code == 0


def test_shards_without_the_record_of_their_job_are_not_overwritten(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path
) -> None:
    job = unfinished(source)
    shutil.rmtree(tmp_path / "out" / "_job")
    before = catalog_files(tmp_path / "out")
    result = tokenloom("pretokenize", job)
    assert result.code == 4
    assert "job.json" in result.err
    assert catalog_files(tmp_path / "out") == before


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_finished_job_whose_shards_are_damaged_is_not_called_finished(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path, damage: str
) -> None:
    job = job_file(source, output={"path": str(tmp_path / "out"), "shard_size": 1024})
    assert tokenloom("pretokenize", job).code == 0
    shard = min((tmp_path / "out" / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    if damage == "gone":
        shard.unlink()
    else:
        data[-100] ^= 1
        shard.write_bytes(data[:-1] if damage == "cut" else data)
    result = tokenloom("pretokenize", job, *(["--verify"] if damage == "changed" else []))
    assert result.code == 4
    assert str(shard) in result.err
    assert "--restart" in result.err
    assert tokenloom("pretokenize", job, "--restart").code == 0


@pytest.mark.parametrize("name", ["tokenizer.json", "shards.parquet", "sources.parquet"])
def test_a_file_that_no_job_wrote_is_neither_overwritten_nor_removed(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path, tokenizer_json: Path, name: str
) -> None:
    """A tokenizer, say, where somebody has `output.path: .` beside it."""
    own = tmp_path / "out" / name
    own.parent.mkdir()
    shutil.copy(tokenizer_json, own)
    job = job_file(source, tokenizer={"path": str(own)} if name == "tokenizer.json" else {})
    for extra in ([], ["--restart"]):
        result = tokenloom("pretokenize", job, *extra)
        assert result.code == 4
        assert str(own) in result.err
        assert own.read_bytes() == tokenizer_json.read_bytes()
    own.unlink()
    if name != "tokenizer.json":
        assert tokenloom("pretokenize", job).code == 0


def test_a_tokenizer_that_was_made_and_is_gone_is_made_again(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path
) -> None:
    job = unfinished(source, tokenizer={"train": {"vocab_size": 300}})
    path = tmp_path / "out" / "tokenizer.json"
    before = path.read_bytes()
    path.unlink()
    assert tokenloom("pretokenize", job).code == 0
    assert path.read_bytes() == before


def test_only_the_last_shard_is_read_on_resume_unless_all_are_asked_for(
    *, tokenloom: Command, unfinished: Unfinished, source: Path, tmp_path: Path
) -> None:
    job = unfinished(source, shards=3)
    first = min((tmp_path / "out" / "shards").iterdir())
    data = bytearray(first.read_bytes())
    data[-100] ^= 1
    first.write_bytes(data)
    result = tokenloom("pretokenize", job, "--verify")
    assert result.code == 4
    assert first.name in result.err
    assert tokenloom("pretokenize", job).code == 0


def test_a_second_run_in_the_same_folder_is_refused_with_the_owner(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    job = job_file(source)
    (tmp_path / "out" / "_job").mkdir(parents=True)
    with (tmp_path / "out" / "_job" / "lock").open("w") as lock:
        lock.write(f"process {os.getpid()} on here")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        for extra in ([], ["--restart"]):
            result = tokenloom("pretokenize", job, *extra)
            assert result.code == 4
            assert f"process {os.getpid()} on here" in result.err
    assert tokenloom("pretokenize", job).code == 0
