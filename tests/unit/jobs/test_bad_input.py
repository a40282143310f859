"""Input that gives no corpus ends in an error that says why, never in an empty success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.errors import InputError
from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeConfig, WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]


def shards(folder: Path) -> list[Path]:
    return list((folder / "shards").glob("*")) if folder.exists() else []


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_wrong_text_field_lists_the_fields_that_were_seen(
    *, tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl, policy: str
) -> None:
    """Case Q66."""
    source = write_jsonl(tmp_path / "a.jsonl", [{"content": "x", "url": "u"}] * 3)
    result = tokenloom("pretokenize", job_file(source, processing={"on_bad_record": policy}))
    assert result.code == 3
    assert "'text'" in result.err or '"text"' in result.err or "text_field" in result.err
    assert "content" in result.err
    assert "url" in result.err
    assert shards(tmp_path / "out") == []
    assert not (tmp_path / "out" / "catalog.json").exists()


def test_files_without_a_document_are_counted_with_the_reasons(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    """Case Q66."""
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": ""}, {"text": "x"}])
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": ""}])
    job = job_file(tmp_path / "in" / "*.jsonl", processing={"min_document_bytes": 5})
    result = tokenloom("pretokenize", job)
    assert result.code == 3
    assert "2 files, 0 documents" in result.err
    assert "empty 2" in result.err
    assert "too_short 1" in result.err
    assert shards(tmp_path / "out") == []


def test_empty_files_are_an_error(tokenloom: Command, job_file: MakeJob, tmp_path: Path) -> None:
    """Case Q66."""
    (tmp_path / "a.jsonl").touch()
    result = tokenloom("pretokenize", job_file(tmp_path / "a.jsonl"))
    assert result.code == 3
    assert "1 files, 0 documents: the files hold no records" in result.err


@pytest.mark.parametrize("name", ["*.jsonl", "a.csv"])
def test_a_pattern_without_match_or_of_unknown_kind_begins_no_job(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, name: str
) -> None:
    """Case Q66."""
    (tmp_path / "a.csv").write_text("text\nx\n")
    result = tokenloom("pretokenize", job_file(tmp_path / name))
    assert result.code == 3
    assert name in result.err
    assert shards(tmp_path / "out") == []


def test_ids_of_any_kind_are_kept_and_missing_ones_tell_file_and_row(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    """Case Q66."""
    records: list[dict[str, Any] | str] = [
        {"text": "x", "id": 17},
        {"text": "x"},
        {"text": "x", "id": "named"},
        "",
        {"text": "x", "id": None},
    ]
    source = write_jsonl(tmp_path / "a.jsonl", records)
    assert tokenloom("pretokenize", job_file(source, source={"id_field": "id"})).code == 0
    catalog = Catalog.open(tmp_path / "out")
    found = [catalog.document(0, row)["id"] for row in range(4)]
    assert found == ["17", "a.jsonl#1", "named", "a.jsonl#4"]


def test_an_error_names_file_and_row_as_an_editor_counts_them(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", ['{"text": "x"}', "", '{"text": '])
    result = tokenloom("pretokenize", job_file(source))
    assert result.code == 3
    assert "a.jsonl" in result.err
    assert "row 3" in result.err


@pytest.mark.parametrize(
    ("record", "sections", "reason", "advice"),
    [
        ("{", {}, "bad_record", "processing.on_bad_record: skip"),
        ('{"content": "x"}', {}, "missing_text", "Set source.text_field"),
        ('{"text": "\\ud800"}', {}, "bad_text", "processing.on_bad_text: replace or skip"),
        (
            '{"text": "a long text"}',
            {"processing": {"max_record_bytes": 9}},
            "too_large",
            "Set processing.max_record_bytes higher",
        ),
        (
            '{"text": "<|endoftext|>"}',
            {"tokenizer": {"control_tokens_in_text": "error"}},
            "control_text",
            "Set tokenizer.control_tokens_in_text",
        ),
    ],
)
def test_what_is_said_of_a_bad_record_says_what_to_do(
    *,
    tokenloom: Command,
    job_file: MakeJob,
    tmp_path: Path,
    write_jsonl: WriteJsonl,
    record: str,
    sections: dict[str, Any],
    reason: str,
    advice: str,
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [record])
    result = tokenloom("pretokenize", job_file(source, **sections))
    assert result.code == 3
    assert f"a.jsonl: row 1 (byte 0): {reason}: " in result.err or f"a.jsonl: row 1: {reason}: " in result.err
    assert advice in result.err


def test_work_does_not_begin_with_an_eos_that_the_tokenizer_does_not_have(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    """Case Q17."""
    result = tokenloom("pretokenize", job_file(source, tokenizer={"eos_token": "</s>"}))
    assert result.code == 2
    assert "'</s>' is not in the vocabulary" in result.err
    assert "'<|endoftext|>' (0)" in result.err
    assert shards(tmp_path / "out") == []


def test_a_dtype_that_does_not_hold_the_ids_is_refused_with_the_largest(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tokenizer_json: Path, tmp_path: Path
) -> None:
    content = json.loads(tokenizer_json.read_bytes())
    content["model"]["vocab"] |= {f"filler{number}": number for number in range(600, 70_000)}
    path = tmp_path / "large.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    job = job_file(source, tokenizer={"path": str(path)}, output={"dtype": "uint16"})
    result = tokenloom("pretokenize", job)
    assert result.code == 2
    assert "69,999" in result.err
    assert "output.dtype" in result.err


def test_a_file_in_the_place_of_the_output_folder_is_an_error_of_the_store(
    tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("in the way")
    result = tokenloom("pretokenize", job_file(source))
    assert result.code == 5
    assert str(tmp_path / "out") in result.err
    assert (tmp_path / "out").read_text() == "in the way"


def test_a_file_name_that_is_not_utf8_is_an_input_error(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path
) -> None:
    folder = str(tmp_path).encode()
    with open(folder + b"/\xff.jsonl", "wb") as stream:  # noqa: PTH123 - a name that is no text
        stream.write(b'{"text": "x"}\n')
    result = tokenloom("pretokenize", job_file(tmp_path / "*.jsonl"))
    assert result.code == 3


def test_a_backend_that_fails_on_the_probes_is_not_taken(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tokenizer_json: Path, tmp_path: Path
) -> None:
    content = json.loads(tokenizer_json.read_bytes())
    vocabulary = [text for text in content["model"]["vocab"] if "Ġ" not in text]
    content["model"] |= {"vocab": {text: number for number, text in enumerate(vocabulary)}, "merges": []}
    path = tmp_path / "no-space.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    result = tokenloom("pretokenize", job_file(source, tokenizer={"path": str(path)}), "--json")
    assert result.code == 0
    assert json.loads(result.out)["backend"].startswith("tokenizers ")


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_store(
    source: Path, make_config: MakeConfig
) -> None:
    def report(_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_job(make_config(source), on_progress=report)


def test_a_failed_job_holds_no_memory_while_its_error_is_looked_at(
    make_config: MakeConfig, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    records: list[dict[str, Any] | str] = [{"text": f"document {row} " * 20} for row in range(500)]
    source = write_jsonl(tmp_path / "a.jsonl", [*records, "no json", *records])
    config = make_config(source, processing={"workers": 1, "batch_bytes": 4000})
    with pytest.raises(InputError) as raised:
        run_job(config)
    held = [str(link.readlink()) for link in list(Path("/proc/self/fd").iterdir()) if link.is_symlink()]
    assert raised.value  # with its traceback, and so every frame of the job
    assert [target for target in held if "memfd" in target] == []
