"""`tokenloom inspect`: one document with its provenance."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.names import TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]


def test_a_document_is_shown_by_its_number(tokenloom: Command, catalog_folder: Path) -> None:
    result = tokenloom("inspect", catalog_folder, "--doc", 100)
    catalog = Catalog.open(catalog_folder)
    shard, row = catalog.locate(100)
    document = catalog.document(shard, row)
    assert (result.code, result.err) == (0, "")
    fields = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert fields["source"] == "b.jsonl"
    assert fields["source_row"] == str(document["source_row"])
    assert fields["id"] == document["id"] == f"b.jsonl-{document['source_row']}"
    assert fields["n"] == fields["source_row"]
    assert fields["shard"] == document["shard"]
    assert fields["num_tokens"] == str(len(document["tokens"]))
    assert fields["tokens"] == " ".join(map(str, document["tokens"]))


def test_a_document_is_shown_by_shard_and_row(tokenloom: Command, catalog_folder: Path) -> None:
    shard, row = Catalog.open(catalog_folder).locate(100)
    by_number = tokenloom("inspect", catalog_folder, "--doc", 100)
    assert tokenloom("inspect", catalog_folder, "--shard", shard, "--row", row) == by_number


def test_as_json_it_has_every_id_and_field(tokenloom: Command, catalog_folder: Path) -> None:
    shown = json.loads(tokenloom("inspect", catalog_folder, "--doc", 7, "--json").out)
    document = Catalog.open(catalog_folder).document(*Catalog.open(catalog_folder).locate(7))
    assert shown == {**document, "tokens": document["tokens"].tolist()}


def test_decoding_gives_the_text_and_its_eos(tokenloom: Command, catalog_folder: Path) -> None:
    shown = json.loads(tokenloom("inspect", catalog_folder, "--doc", 0, "--decode", "--json").out)
    assert shown["text"] == "a.jsonl the quick fox 0<|endoftext|>"
    assert "a.jsonl the quick fox 0" in tokenloom("inspect", catalog_folder, "--doc", 0, "--decode").out


def test_decoding_needs_no_job_folder_and_no_original_tokenizer(
    tokenloom: Command, catalog_folder: Path
) -> None:
    shutil.rmtree(catalog_folder / "_job")
    assert tokenloom("inspect", catalog_folder, "--doc", 0, "--decode").code == 0


@pytest.mark.parametrize("content", [None, b"", b"{}", b"no json"])
def test_a_missing_or_damaged_tokenizer_is_an_error_of_the_catalog(
    tokenloom: Command, catalog_folder: Path, content: bytes | None
) -> None:
    if content is None:
        (catalog_folder / TOKENIZER).unlink()
    else:
        (catalog_folder / TOKENIZER).write_bytes(content)
    result = tokenloom("inspect", catalog_folder, "--doc", 0, "--decode")
    assert result.code == 4
    assert TOKENIZER in result.err


def test_long_documents_are_shortened_for_reading_and_whole_as_json(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    text = "0123456789" * 1000
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": text}])
    assert tokenloom("pretokenize", job_file(source)).code == 0
    printed = tokenloom("inspect", tmp_path / "out", "--doc", 0, "--decode").out
    assert " ..." in printed
    assert "(10,013 characters)" in printed
    assert len(printed) < 4000
    shown = json.loads(tokenloom("inspect", tmp_path / "out", "--doc", 0, "--decode", "--json").out)
    assert shown["text"] == f"{text}<|endoftext|>"
    assert len(shown["tokens"]) > 64


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--shard", "0"],
        ["--row", "0"],
        ["--doc", "0", "--shard", "0"],
        ["--doc", "0", "--row", "0"],
        ["--doc", "0", "--shard", "0", "--row", "0"],
    ],
)
def test_either_a_number_or_a_place_has_to_be_given(
    tokenloom: Command, catalog_folder: Path, options: list[str]
) -> None:
    result = tokenloom("inspect", catalog_folder, *options)
    assert (result.code, result.out) == (2, "")
    assert "--doc N, or --shard I and --row J" in result.err


@pytest.mark.parametrize(
    "options",
    [["--doc", "121"], ["--doc", "-1"], ["--shard", "99", "--row", "0"], ["--shard", "0", "--row", "99999"]],
)
def test_what_is_not_there_ends_with_3_and_the_range(
    tokenloom: Command, catalog_folder: Path, options: list[str]
) -> None:
    result = tokenloom("inspect", catalog_folder, *options)
    assert result.code == 3
    assert "expected 0 to" in result.err


def test_a_damaged_shard_ends_with_4(tokenloom: Command, catalog_folder: Path) -> None:
    path = min((catalog_folder / "shards").iterdir())
    path.write_bytes(path.read_bytes()[:-50])
    result = tokenloom("inspect", catalog_folder, "--doc", 0)
    assert result.code == 4
    assert path.name in result.err


def test_text_that_a_terminal_cannot_print_is_printed_all_the_same(
    *, tokenloom_process: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    """Case Q11: whatever the locale."""
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "naïve 東京"}])
    job = job_file(source)
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": "/usr/bin:/bin"}
    assert tokenloom_process("pretokenize", job, "--quiet", env=environment).code == 0
    result = tokenloom_process("inspect", tmp_path / "out", "--doc", 0, "--decode", env=environment)
    assert result.code == 0
    assert "source_row" in result.out
