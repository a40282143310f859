"""`tokenloom catalog show` and `verify`: what is printed, and the exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.catalog import Catalog, write_tables
from prep.catalog.names import HEADER, SHARDS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]
    Damage = Callable[[Path], object]


def first_shard(folder: Path) -> Path:
    return min((folder / "shards").iterdir())


def flip_byte(folder: Path) -> None:
    path = first_shard(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def truncate(folder: Path) -> None:
    path = first_shard(folder)
    path.write_bytes(path.read_bytes()[:-100])


def delete(folder: Path) -> None:
    first_shard(folder).unlink()


def edit_shards(folder: Path) -> None:
    catalog = Catalog.open(folder)
    rows = catalog.shards().to_pylist()
    rows[0]["num_tokens"] += 1
    write_tables(folder, rows, catalog.sources())


def edit_header(folder: Path) -> None:
    header = json.loads((folder / HEADER).read_bytes())
    header["totals"]["num_tokens"] += 1
    (folder / HEADER).write_text(json.dumps(header), encoding="utf-8")


def delete_sources(folder: Path) -> None:
    (folder / SOURCES).unlink()


def garble_shards(folder: Path) -> None:
    (folder / SHARDS).write_bytes(b"PAR1 and more PAR1")


DAMAGES = [flip_byte, truncate, delete, edit_shards, edit_header, delete_sources, garble_shards]
NO_CATALOG: list[Damage] = [
    lambda folder: (folder / HEADER).unlink(),
    lambda folder: (folder / HEADER).write_bytes(b"{"),
    lambda folder: (folder / HEADER).write_text('{"format": "tokenloom-catalog", "format_version": 99}'),
]


def test_show_prints_totals_lengths_and_shards(tokenloom: Command, catalog_folder: Path) -> None:
    result = tokenloom("catalog", "show", catalog_folder)
    assert (result.code, result.err) == (0, "")
    header = Catalog.open(catalog_folder).header
    totals = header["totals"]
    density = totals["num_tokens"] / totals["text_bytes"]
    for shown in (
        "finished",
        f"{totals['num_documents']:,}",
        f"{totals['num_tokens']:,} (uint16)",
        f"{density:.3f} tokens a byte",
        header["tokenizer"]["fingerprint"],
        "read 125 = written 121 + bad_record 4",
    ):
        assert shown in result.out
    for path in (catalog_folder / "shards").iterdir():
        assert f"shards/{path.name}" in result.out


def test_the_histogram_of_lengths_is_drawn_to_scale(tokenloom: Command, catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    bins = [
        sum(column) for column in zip(*catalog.shards().column("length_histogram").to_pylist(), strict=True)
    ]
    lines = tokenloom("catalog", "show", catalog_folder).out.partition("tokens a document\n")[2].splitlines()
    filled = [number for number, count in enumerate(bins) if count]
    assert len(filled) > 1
    widths = {}
    for number, line in zip(range(filled[0], filled[-1] + 1), lines, strict=False):
        assert f"{2 ** (number - 1):,} to" in line
        assert f"{bins[number]:,}" in line
        widths[number] = line.count("█")
    fullest = max(filled, key=bins.__getitem__)
    assert widths[fullest] == max(widths.values()) == 40
    assert all(abs(width - 40 * bins[number] / bins[fullest]) <= 0.5 for number, width in widths.items())


def test_show_as_json_holds_header_and_shards(tokenloom: Command, catalog_folder: Path) -> None:
    shown = json.loads(tokenloom("catalog", "show", "--json", catalog_folder).out)
    catalog = Catalog.open(catalog_folder)
    assert shown["header"] == catalog.header
    assert shown["shards"] == catalog.shards().to_pylist()


def test_show_shortens_a_long_table_and_counts_the_rest(
    tokenloom: Command, job_file: MakeJob, tmp_path: Path, write_jsonl: WriteJsonl
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 1200}] * 25)
    assert tokenloom("pretokenize", job_file(source, output={"shard_size": 1024})).code == 0
    result = tokenloom("catalog", "show", tmp_path / "out")
    assert result.out.count(".arrow") == 20
    assert "... and 5 more" in result.out


@pytest.mark.parametrize("command", [["catalog", "show"], ["catalog", "verify"], ["inspect", "--doc", "0"]])
@pytest.mark.parametrize("damage", NO_CATALOG)
def test_what_is_no_finished_catalog_ends_with_4(
    tokenloom: Command, catalog_folder: Path, command: list[str], damage: Damage
) -> None:
    damage(catalog_folder)
    result = tokenloom(*command, catalog_folder)
    assert (result.code, result.out) == (4, "")
    assert str(catalog_folder) in result.err


@pytest.mark.parametrize("command", [["catalog", "show"], ["catalog", "verify"], ["inspect", "--doc", "0"]])
def test_a_folder_that_is_not_there_ends_with_4_and_says_so(
    tokenloom: Command, tmp_path: Path, command: list[str]
) -> None:
    result = tokenloom(*command, tmp_path / "nowhere")
    assert result.code == 4
    assert "no catalog" in result.err


def test_verify_on_a_good_catalog_ends_with_0_and_counts(tokenloom: Command, catalog_folder: Path) -> None:
    result = tokenloom("catalog", "verify", catalog_folder)
    totals = Catalog.open(catalog_folder).header["totals"]
    assert result.code == 0
    assert result.out == (
        f"finished: {totals['num_shards']:,} shards, {totals['num_documents']:,} documents, "
        f"{totals['num_tokens']:,} tokens: verified\n"
    )


def test_verify_takes_the_header_for_the_folder(tokenloom: Command, catalog_folder: Path) -> None:
    assert tokenloom("catalog", "verify", catalog_folder / HEADER).code == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_on_a_damaged_catalog_ends_with_4_and_names_the_file(
    tokenloom: Command, catalog_folder: Path, damage: Damage
) -> None:
    damage(catalog_folder)
    result = tokenloom("catalog", "verify", catalog_folder)
    assert result.code == 4
    named = {SHARDS, SOURCES, HEADER, *(f"{catalog_folder.name}-0", ".arrow")}
    assert any(name in result.out + result.err for name in named)
    assert "verified" not in result.out


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_report_as_json_lists_the_findings(
    tokenloom: Command, catalog_folder: Path, damage: Damage
) -> None:
    damage(catalog_folder)
    result = tokenloom("catalog", "verify", "--json", catalog_folder)
    assert result.code == 4
    report = json.loads(result.out)
    assert report["ok"] is False
    assert report["findings"]
    assert all(set(finding) == {"where", "what"} for finding in report["findings"])


def test_the_report_of_a_good_catalog_as_json(tokenloom: Command, catalog_folder: Path) -> None:
    report: dict[str, Any] = json.loads(tokenloom("catalog", "verify", "--json", catalog_folder).out)
    totals = Catalog.open(catalog_folder).header["totals"]
    assert report == {
        "ok": True,
        "shards": totals["num_shards"],
        "documents": totals["num_documents"],
        "tokens": totals["num_tokens"],
        "findings": [],
    }


def test_every_damage_is_printed_on_a_line_of_its_own(tokenloom: Command, catalog_folder: Path) -> None:
    delete(catalog_folder)
    flip_byte(catalog_folder)
    edit_header(catalog_folder)
    result = tokenloom("catalog", "verify", catalog_folder)
    lines = result.out.splitlines()
    assert result.code == 4
    assert len(lines) >= 4
    assert lines[-1].endswith(f"{len(lines) - 1} findings")
