"""`--dry-run` shows what would be done, and writes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]


@pytest.mark.parametrize("options", [[], ["--json"], ["--restart"], ["--quiet"]])
def test_it_writes_nothing(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    source: Path,
    tmp_path: Path,
    snapshot: Callable[[Path], dict[str, bytes]],
    options: list[str],
) -> None:
    job = job_file(source)
    before = snapshot(tmp_path)
    assert tokenloom("pretokenize", job, "--dry-run", *options).code == 0
    assert not (tmp_path / "out").exists()
    assert snapshot(tmp_path) == before


def test_a_job_that_is_there_stays_as_it_is(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    source: Path,
    tmp_path: Path,
    snapshot: Callable[[Path], dict[str, bytes]],
) -> None:
    job = job_file(source)
    tokenloom("pretokenize", job)
    before = snapshot(tmp_path)
    assert tokenloom("pretokenize", job, "--dry-run", "--restart").code == 0
    assert snapshot(tmp_path) == before


def test_it_shows_configuration_sources_stages_and_output(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    write_jsonl(source.parent / "b.jsonl", [{"text": "x"}])
    job = job_file(source.parent / "*.jsonl", processing={"workers": 3})
    result = tokenloom("pretokenize", job, "--dry-run", "--set", "output.shard_size=1MB")
    size = sum(path.stat().st_size for path in source.parent.iterdir())
    for shown in (f"sources: 2 files, {size:,} bytes", "a.jsonl", "b.jsonl", "shard_size: 1000000"):
        assert shown in result.out
    for stage in ("downloader", "reader", "tokenizer", "writer", "backend"):
        assert f"\n  {stage}" in result.out
    assert "3 processes" in result.out
    assert result.out.rstrip().endswith(f"output: {tmp_path / 'out'}")


def test_the_plan_as_json_is_complete(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    plan = json.loads(tokenloom("pretokenize", job_file(source), "--dry-run", "--json").out)
    assert plan["sources"] == [{"name": "a.jsonl", "size": source.stat().st_size, "format": "jsonl"}]
    assert plan["source_bytes"] == source.stat().st_size
    assert plan["output"] == str(tmp_path / "out")
    assert plan["config"]["processing"]["max_record_bytes"] == 256 << 20
    assert plan["tokenizer"]["EOS"] == "0"
    assert set(plan["stages"]) == {"downloader", "reader", "tokenizer", "backend", "writer"}


def test_the_printed_configuration_is_the_resolved_one_and_can_be_used_again(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    job = job_file(source)
    first = tokenloom("pretokenize", job, "--dry-run").out
    printed = first.partition("\n\nsources: ")[0]
    again = tmp_path / "again.yaml"
    again.write_text(printed, encoding="utf-8")
    assert yaml.safe_load(printed)["output"]["compression"] == "none"
    assert tokenloom("pretokenize", again, "--dry-run").out == first


def test_a_long_list_of_sources_is_shortened_and_counted(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    for number in range(25):
        write_jsonl(tmp_path / "in" / f"{number:02}.jsonl", [{"text": "x"}])
    result = tokenloom("pretokenize", job_file(tmp_path / "in" / "*.jsonl"), "--dry-run")
    assert "sources: 25 files" in result.out
    assert "... and 5 more" in result.out
    assert "24.jsonl" not in result.out


def test_secrets_are_not_printed(tokenloom: Command, job_file: MakeJob, source: Path) -> None:
    job = job_file(source, source={"storage_options": {"key": "hunter2"}})
    for options in ([], ["--json"]):
        result = tokenloom("pretokenize", job, "--dry-run", *options)
        assert "hunter2" not in result.out + result.err
        assert "***" in result.out


def test_a_tokenizer_that_is_to_be_made_is_not_made(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    job = job_file(source, tokenizer={"train": {"vocab_size": 300}})
    result = tokenloom("pretokenize", job, "--dry-run")
    assert result.code == 0
    assert "300 ids" in result.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "sections", "code"),
    [
        ("none.jsonl", {}, 3),
        ("a.jsonl", {"tokenizer": {"path": "none/tokenizer.json"}}, 2),
        ("a.jsonl", {"tokenizer": {"eos_token": "<none>"}}, 2),
        ("a.jsonl", {"source": {"format": "parquet", "keep_fields": ["x"]}}, 3),
    ],
)
def test_what_would_stop_the_job_at_its_start_stops_the_plan_too(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    source: Path,
    name: str,
    sections: dict[str, dict[str, str]],
    code: int,
) -> None:
    result = tokenloom("pretokenize", job_file(source.parent / name, **sections), "--dry-run")
    assert result.code == code
    assert result.err.startswith("tokenloom: error: ")
