"""`tokenloom pretokenize` on input as it should be: what is written, and what is said about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from prep.catalog.catalog import Catalog
from prep.catalog.shard import ShardFile
from prep.catalog.verify import verify_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]


def documents(folder: Path) -> list[dict[str, Any]]:
    catalog = Catalog.open(folder)
    found = []
    for path in catalog.shards(["path"]).column("path").to_pylist():
        with ShardFile(catalog.file(path)) as shard:
            found += [shard.row(row) for row in range(len(shard))]
    return found


@pytest.mark.parametrize("backend", ["tokenizers", "auto"])
def test_ids_are_those_of_the_library_with_eos_behind_each_document(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    tmp_path: Path,
    write_jsonl: WriteJsonl,
    tokenizer_json: Path,
    backend: str,
) -> None:
    texts = ["the quick", "naïve 東京", "<|endoftext|> in text", "\x00\r\n", "x" * 5000, " "]
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    result = tokenloom("pretokenize", job_file(source, tokenizer={"backend": backend}))
    assert result.code == 0
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    tokenizer.encode_special_tokens = True
    expected = [[*tokenizer.encode(text, add_special_tokens=False).ids, 0] for text in texts]
    found = documents(tmp_path / "out")
    assert [document["tokens"].tolist() for document in found] == expected
    assert [document["text_bytes"] for document in found] == [len(text.encode()) for text in texts]


def test_the_summary_counts_what_was_done_and_says_what_to_do_next(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    result = tokenloom("pretokenize", job_file(source))
    assert result.code == 0
    assert result.out.startswith("test: done\n")
    header = Catalog.open(tmp_path / "out").header
    for shown in ("100", f"{header['totals']['num_tokens']:,} (uint16)", "backend", "tokens a byte"):
        assert shown in result.out
    for command in ("catalog show", "catalog verify", "inspect"):
        assert f"tokenloom {command} {tmp_path / 'out'}" in result.out
    assert verify_catalog(Catalog.open(tmp_path / "out")).ok


def test_the_summary_as_json_agrees_with_the_catalog(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    summary = json.loads(tokenloom("pretokenize", job_file(source), "--json").out)
    header = Catalog.open(tmp_path / "out").header
    assert summary["ledger"] == header["ledger"]
    assert summary["tokens"] == header["totals"]["num_tokens"]
    assert summary["shards"] == header["totals"]["num_shards"]
    assert summary["tokenizer"] == header["tokenizer"]["fingerprint"]
    assert (summary["resumed_shards"], summary["sources"]) == (0, 1)


def test_fields_are_overridden_on_the_command_line(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    job = job_file(source)
    overrides = [f"output.path={tmp_path / 'other'}", "output.shard_size=1024", "name=renamed"]
    arguments = [part for override in overrides for part in ("--set", override)]
    assert tokenloom("pretokenize", job, *arguments).code == 0
    assert not (tmp_path / "out").exists()
    catalog = Catalog.open(tmp_path / "other")
    assert catalog.name == "renamed"
    assert catalog.header["totals"]["num_shards"] > 3
    assert all(path.name.startswith("renamed-") for path in (tmp_path / "other" / "shards").iterdir())


def test_a_finished_job_says_so_and_touches_nothing(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    source: Path,
    tmp_path: Path,
    snapshot: Callable[[Path], dict[str, bytes]],
) -> None:
    job = job_file(source)
    assert tokenloom("pretokenize", job).code == 0
    before = snapshot(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.name != "lock"}
    result = tokenloom("pretokenize", job)
    assert result.code == 0
    assert "finished before, nothing to do" in result.out
    assert json.loads(tokenloom("pretokenize", job, "--json").out)["worked"] is False
    assert snapshot(tmp_path / "out") == before
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_a_restart_begins_anew_and_gives_the_same_bytes(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    source: Path,
    tmp_path: Path,
    snapshot: Callable[[Path], dict[str, bytes]],
) -> None:
    job = job_file(source, output={"shard_size": 2000})
    tokenloom("pretokenize", job)
    before = {name: data for name, data in snapshot(tmp_path / "out").items() if "_job" not in name}
    result = tokenloom("pretokenize", job, "--restart", "--json")
    assert json.loads(result.out)["worked"] is True
    after = {name: data for name, data in snapshot(tmp_path / "out").items() if "_job" not in name}
    assert after == before


def test_a_restart_with_other_fields_leaves_nothing_of_the_job_before(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    tokenloom("pretokenize", job_file(source, output={"shard_size": 1024}))
    many = len(list((tmp_path / "out" / "shards").iterdir()))
    assert tokenloom("pretokenize", job_file(source, name="second"), "--restart").code == 0
    (shard,) = (tmp_path / "out" / "shards").iterdir()
    assert many > 1
    assert shard.name == "second-00000-000000.arrow"
    assert len(list((tmp_path / "out" / "_job" / "journal").iterdir())) == 1


def test_rejected_records_are_listed_with_file_row_offset_and_reason(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    lines = [
        '{"text": "first"}',
        "no json",
        "",
        '{"text": "ok"}',
        '{"other": 1}',
        '{"text": ""}',
        '{"text": 5}',
    ]
    source = write_jsonl(tmp_path / "a.jsonl", lines)
    result = tokenloom("pretokenize", job_file(source, processing={"on_bad_record": "skip"}), "--json")
    assert result.code == 0
    ledger = json.loads(result.out)["ledger"]
    assert ledger["written"] == 2
    assert {reason: count for reason, count in ledger["rejected"].items() if count} == {
        "bad_record": 2,
        "missing_text": 1,
        "empty": 1,
    }
    assert ledger["read"] == 6
    (path,) = (tmp_path / "out" / "_job" / "rejects").iterdir()
    rejects = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(reject["file"], reject["row"], reject["reason"]) for reject in rejects] == [
        ("a.jsonl", 1, "bad_record"),
        ("a.jsonl", 4, "missing_text"),
        ("a.jsonl", 6, "bad_record"),
    ]
    data = source.read_bytes()
    assert [data[reject["offset"] :].splitlines()[0].decode() for reject in rejects] == [
        lines[reject["row"]] for reject in rejects
    ]


def test_the_sources_table_has_every_file_in_reading_order(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": "x"}] * 3)
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "x"}] * 2)
    (tmp_path / "in" / "empty.jsonl").touch()
    assert tokenloom("pretokenize", job_file(tmp_path / "in" / "*.jsonl")).code == 0
    rows = pq.read_table(tmp_path / "out" / "sources.parquet").to_pylist()
    assert [(row["name"], row["records_read"]) for row in rows] == [
        ("a.jsonl", 2),
        ("b.jsonl", 3),
        ("empty.jsonl", 0),
    ]


def test_a_tokenizer_is_made_of_the_sources_and_kept_beside_the_catalog(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    job = job_file(source, tokenizer={"train": {"vocab_size": 300}})
    first = json.loads(tokenloom("pretokenize", job, "--json").out)
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).get_vocab_size() <= 300
    again = json.loads(tokenloom("pretokenize", job, "--json").out)
    assert (again["worked"], again["tokenizer"]) == (False, first["tokenizer"])
    other = json.loads(
        tokenloom("pretokenize", job, "--json", "--set", f"output.path={tmp_path / 'other'}").out
    )
    assert other["tokenizer"] == first["tokenizer"]


@pytest.mark.parametrize("backend", ["tokenizers", "auto"])
def test_every_document_is_between_bos_and_eos_and_the_counts_say_so(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    tmp_path: Path,
    write_jsonl: WriteJsonl,
    tokenizer_json: Path,
    backend: str,
) -> None:
    """Case Q16."""
    content = json.loads(tokenizer_json.read_bytes())
    bos = max(content["model"]["vocab"].values()) + 1
    content["added_tokens"].append({**content["added_tokens"][0], "id": bos, "content": "<s>"})
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [bos], "tokens": ["<s>"]}},
    }
    path = tmp_path / "bos.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in ("the", "", "quick fox")])
    job = job_file(
        source,
        tokenizer={"path": str(path), "backend": backend, "eos_token": "<|endoftext|>"},
        processing={"on_empty": "keep"},
    )
    assert tokenloom("pretokenize", job).code == 0
    found = [document["tokens"].tolist() for document in documents(tmp_path / "out")]
    assert [(ids[0], ids[-1], len(ids) > 2) for ids in found] == [
        (bos, 0, True),
        (bos, 0, False),
        (bos, 0, True),
    ]
    (row,) = pq.read_table(tmp_path / "out" / "shards.parquet").to_pylist()
    assert row["bos_added"] == row["eos_added"] == row["num_documents"] == 3
    assert verify_catalog(Catalog.open(tmp_path / "out")).ok
