"""What is committed stays, what is not goes, and damage is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from prep.catalog.errors import IntegrityError
from prep.journal import VERSION, Entry, Journal, add_counts
from prep.pipeline.messages import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def make_entry(journal: Journal, index: int, content: bytes) -> Entry:
    """The entry of a shard whose file has this content, which is written too."""
    path = journal.shard_path(index)
    path.write_bytes(content)
    row = {
        "task": journal.task,
        "index": index,
        "path": path.relative_to(journal.folder).as_posix(),
        "file_bytes": len(content),
        "checksum": xxhash.xxh3_64_intdigest(content),
    }
    return Entry(row, Position(file=1, next_row=index), {"written": index}, [[0, index, 0]])


def commit(journal: Journal, count: int, rejects: bytes = b"") -> list[Entry]:
    entries = [make_entry(journal, index, b"shard %d" % index) for index in range(count)]
    for entry in entries:
        journal.commit(entry, rejects)
    return entries


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path, "name")
    made.prepare()
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_nothing_is_committed_at_first(journal: Journal) -> None:
    assert journal.recover() == []
    journal.prepare()  # and again


def test_committed_shards_come_back_in_order_as_they_were(journal: Journal) -> None:
    entries = commit(journal, 12)
    assert journal.recover() == entries
    assert journal.recover(verify_all=True) == entries
    assert names(journal.folder / "_job") == [f"_job/journal/00000-{n:06}.json"[5:] for n in range(12)]


def test_an_entry_is_one_small_file_of_json(journal: Journal) -> None:
    entry = make_entry(journal, 3, b"x")
    journal.commit(entry, b"")
    document = json.loads(journal.entry_path(3).read_bytes())
    assert document["version"] == VERSION
    assert document["shard"] == entry.row
    assert document["next"] == entry.position._asdict()
    assert document["ledger"] == {"written": 3}
    assert document["sources"] == [[0, 3, 0]]


def test_rejects_are_committed_before_the_entry(journal: Journal) -> None:
    journal.scratch.rmdir()  # nothing can be written any more
    entry = make_entry(journal, 0, b"x")
    with pytest.raises(Exception, match="rejects"):
        journal.commit(entry, b"line\n")
    assert names(journal.folder / "_job") == []


def test_rejects_lie_beside_the_journal_under_the_same_number(journal: Journal) -> None:
    commit(journal, 1, b'{"row": 1}\n')
    assert journal.rejects_path(0).read_bytes() == b'{"row": 1}\n'
    assert journal.rejects_path(0).stem == journal.entry_path(0).stem == "00000-000000"
    assert journal.shard_path(0).name == "name-00000-000000.arrow"


def test_what_is_not_committed_is_dropped(journal: Journal) -> None:
    entries = commit(journal, 2, b"line\n")
    journal.shard_path(2).write_bytes(b"a shard without an entry")
    journal.shard_path(7).write_bytes(b"another")
    journal.rejects_path(2).write_bytes(b"rejects without an entry")
    assert journal.recover() == entries
    assert names(journal.folder / "shards") == ["name-00000-000000.arrow", "name-00000-000001.arrow"]
    assert names(journal.folder / "_job" / "rejects") == ["00000-000000.jsonl", "00000-000001.jsonl"]


def test_files_of_another_task_or_name_are_not_touched(journal: Journal) -> None:
    other = Journal(journal.folder, "name", task=1)
    entries = commit(other, 2, b"line\n")
    other.shard_path(2).write_bytes(b"not committed by the other task yet")
    strangers = [journal.folder / "shards" / name for name in ("other-00000-000009.arrow", "README")]
    for path in strangers:
        path.write_bytes(b"")
    assert journal.recover() == []
    assert other.shard_path(2).exists()
    assert all(path.exists() for path in strangers)
    assert other.recover() == entries
    assert not other.shard_path(2).exists()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_committed_shard_that_is_missing_is_an_integrity_error(journal: Journal, index: int) -> None:
    commit(journal, 3)
    journal.shard_path(index).unlink()
    with pytest.raises(IntegrityError) as raised:
        journal.recover()
    assert str(journal.shard_path(index)) in str(raised.value)
    assert "found no file" in str(raised.value)


@pytest.mark.parametrize("index", [0, 2])
def test_a_committed_shard_of_another_size_is_an_integrity_error(journal: Journal, index: int) -> None:
    commit(journal, 3)
    journal.shard_path(index).write_bytes(b"more than before")
    with pytest.raises(IntegrityError, match="committed with 7 bytes, found 16 bytes"):
        journal.recover()


def test_of_equal_sizes_only_the_last_shard_is_read_unless_all_are_asked_for(journal: Journal) -> None:
    entries = commit(journal, 3)
    journal.shard_path(0).write_bytes(b"SHARD 0")
    assert journal.recover() == entries
    with pytest.raises(IntegrityError, match=r"name-00000-000000\.arrow: checksum"):
        journal.recover(verify_all=True)
    journal.shard_path(2).write_bytes(b"SHARD 2")
    with pytest.raises(IntegrityError, match=r"name-00000-000002\.arrow: checksum"):
        journal.recover()


def test_damage_drops_nothing(journal: Journal) -> None:
    commit(journal, 2)
    journal.shard_path(2).write_bytes(b"not committed")
    journal.shard_path(0).unlink()
    with pytest.raises(IntegrityError):
        journal.recover()
    assert journal.shard_path(2).exists()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_hole_in_the_journal_is_an_integrity_error_that_names_the_file(
    journal: Journal, missing: int
) -> None:
    commit(journal, 3)
    journal.entry_path(missing).unlink()
    with pytest.raises(IntegrityError) as raised:
        journal.recover()
    assert str(journal.entry_path(missing)) in str(raised.value)


def test_a_lost_last_entry_means_that_its_shard_is_made_again(journal: Journal) -> None:
    entries = commit(journal, 3)
    journal.entry_path(2).unlink()
    assert journal.recover() == entries[:2]
    assert not journal.shard_path(2).exists()


def test_an_entry_of_another_version_is_refused_with_both_numbers(journal: Journal) -> None:
    commit(journal, 1)
    document = json.loads(journal.entry_path(0).read_bytes())
    journal.entry_path(0).write_text(json.dumps({**document, "version": VERSION + 1}))
    with pytest.raises(IntegrityError, match=f"version: expected {VERSION}, found {VERSION + 1}"):
        journal.recover()


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def remove(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return remove


@pytest.mark.parametrize(
    "damage",
    [
        without("version"),
        without("shard"),
        without("shard", "file_bytes"),
        without("shard", "checksum"),
        without("shard", "path"),
        without("next"),
        without("ledger"),
        without("sources"),
        lambda document: document.update(shard=[]),
        lambda document: document.update(next={"unknown": 1}),
        lambda document: document.update(next=None),
    ],
)
def test_an_entry_without_something_is_an_integrity_error_with_its_path(
    journal: Journal, damage: Callable[[dict[str, Any]], None]
) -> None:
    commit(journal, 1)
    document = json.loads(journal.entry_path(0).read_bytes())
    damage(document)
    journal.entry_path(0).write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match=r"00000-000000"):
        journal.recover()


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"\xff", b"17"])
def test_an_entry_that_is_none_is_an_integrity_error_with_its_path(journal: Journal, content: bytes) -> None:
    commit(journal, 1)
    journal.entry_path(0).write_bytes(content)
    with pytest.raises(IntegrityError, match=r"00000-000000\.json: damaged"):
        journal.recover()


def test_counts_are_added_by_name() -> None:
    total = {"written": 1}
    add_counts(total, {"written": 2, "empty": 3})
    add_counts(total, {})
    assert total == {"written": 3, "empty": 3}
