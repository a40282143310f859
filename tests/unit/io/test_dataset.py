"""Datasets: what their columns hold, what names their content, what is refused."""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.errors import InputError, IntegrityError
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS
from prep.index import build_catalog
from runtime.debug import DatasetInspector
from runtime.io import Dataset, InMemoryShard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def raw_folder(tmp_path: Path) -> Path:
    """A catalog of two JSONL files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, count in (("a", 3), ("b", 2)):
        rows = [{"text": f"{name} é {number}"} for number in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_catalog(folder)
    return folder


@pytest.fixture
def memory_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder of fsspec's memory file system."""
    root = f"/{request.node.name}"
    yield f"memory:/{root}"
    fsspec.filesystem("memory").rm(root, recursive=True)


def through_pickle(dataset: Dataset) -> Dataset:
    copied: Dataset = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - bytes of our own
    return copied


def test_the_columns_of_token_shards_are_those_of_the_catalog(catalog_folder: Path) -> None:
    dataset = Dataset.from_path("web", str(catalog_folder))
    rows = Catalog.open(catalog_folder).shards().to_pylist()
    assert (dataset.name, dataset.kind, dataset.format) == ("web", "tokens", "arrow")
    assert dataset.ids().tolist() == list(range(len(rows)))
    assert dataset.counts().tolist() == [row["num_documents"] for row in rows]
    for column, name in ((dataset.raw_bytes(), "text_bytes"), (dataset.num_tokens(), "num_tokens")):
        assert column is not None
        assert column.tolist() == [row[name] for row in rows]
        assert column.dtype == np.int64
    assert dataset.shard_count == len(rows)
    assert dataset.total == 121
    assert dataset.max_count == max(row["num_documents"] for row in rows)
    assert repr(dataset) == f"Dataset('web', tokens, arrow, {len(rows)} shards, 121 rows)"


def test_columns_are_read_once_and_cannot_be_written(catalog_folder: Path) -> None:
    dataset = Dataset.from_path("web", str(catalog_folder))
    assert dataset.counts() is dataset.counts()
    with pytest.raises(ValueError, match="read-only"):
        dataset.counts()[0] = 5


def test_opening_reads_no_table(catalog_folder: Path) -> None:
    (catalog_folder / SHARDS).unlink()
    dataset = Dataset.from_path("web", str(catalog_folder))
    with pytest.raises(IntegrityError, match=SHARDS):
        dataset.counts()


def test_a_catalog_of_raw_files_has_text_but_no_tokens(raw_folder: Path) -> None:
    dataset = Dataset.from_path("raw", str(raw_folder))
    assert (dataset.kind, dataset.format) == ("raw", "jsonl")
    assert dataset.counts().tolist() == [3, 2]
    assert dataset.num_tokens() is None
    raw_bytes = dataset.raw_bytes()
    assert raw_bytes is not None
    assert raw_bytes.tolist() == [18, 12]


@pytest.mark.parametrize("fmt", [None, "auto", "jsonl"])
def test_the_format_is_the_catalogs(raw_folder: Path, fmt: str | None) -> None:
    assert Dataset.from_path("raw", str(raw_folder), fmt=fmt).format == "jsonl"


def test_another_format_is_refused_with_both(raw_folder: Path) -> None:
    with pytest.raises(ValueError, match="fmt: expected 'parquet', found 'jsonl'"):
        Dataset.from_path("raw", str(raw_folder), fmt="parquet")


def test_a_header_names_its_folder(raw_folder: Path) -> None:
    assert Dataset.from_path("raw", str(raw_folder / HEADER)).total == 5
    assert Dataset.from_path("raw", f"file://{raw_folder}").total == 5


def test_what_is_no_catalog_is_refused(tmp_path: Path, catalog_folder: Path) -> None:
    with pytest.raises(IntegrityError, match="no catalog"):
        Dataset.from_path("x", str(tmp_path / "nowhere"))
    (catalog_folder / HEADER).unlink()
    assert (catalog_folder / JOB_FOLDER).is_dir()
    with pytest.raises(IntegrityError, match="unfinished job"):
        Dataset.from_path("x", str(catalog_folder))


def test_a_dataset_has_a_name(catalog_folder: Path) -> None:
    for make in (
        lambda: Dataset.from_path("", str(catalog_folder)),
        lambda: Dataset.from_dict("", {}),
        lambda: Dataset.from_counts("", []),
    ):
        with pytest.raises(ValueError, match="a dataset's name"):
            make()


def test_a_table_that_is_not_the_headers_is_refused_when_it_is_read(catalog_folder: Path) -> None:
    data = bytearray((catalog_folder / SHARDS).read_bytes())
    data[len(data) // 2] ^= 1
    (catalog_folder / SHARDS).write_bytes(data)
    with pytest.raises(IntegrityError, match="checksum: expected"):
        Dataset.from_path("x", str(catalog_folder)).counts()


def test_the_fingerprint_is_of_the_content_not_of_place_or_name(raw_folder: Path, tmp_path: Path) -> None:
    first = Dataset.from_path("one", str(raw_folder))
    moved = shutil.copytree(raw_folder, tmp_path / "moved")
    (moved / "b.jsonl").rename(moved / "c.jsonl")
    build_catalog(moved, name="else", rebuild=True)
    second = Dataset.from_path("two", str(moved))
    assert first.fingerprint == second.fingerprint
    assert first != second
    assert first == Dataset.from_path("one", str(moved))
    assert len(first.fingerprint) == 32


def test_other_content_or_another_order_has_another_fingerprint(raw_folder: Path) -> None:
    seen = {Dataset.from_path("x", str(raw_folder)).fingerprint}
    (raw_folder / "a.jsonl").rename(raw_folder / "c.jsonl")
    build_catalog(raw_folder, rebuild=True)
    seen.add(Dataset.from_path("x", str(raw_folder)).fingerprint)
    (raw_folder / "c.jsonl").write_text('{"text": "A é 0"}\n')
    build_catalog(raw_folder, rebuild=True)
    seen.add(Dataset.from_path("x", str(raw_folder)).fingerprint)
    assert len(seen) == 3


def test_a_pickle_is_small_and_finds_the_same_catalog_or_none(catalog_folder: Path) -> None:
    dataset = Dataset.from_path("x", str(catalog_folder))
    dataset.counts()
    assert len(pickle.dumps(dataset)) < 5_000
    assert through_pickle(dataset) == dataset
    again = Dataset.from_path("x", str(catalog_folder))
    (catalog_folder / SHARDS).write_bytes(b"other")
    with pytest.raises(IntegrityError, match="checksum"):
        through_pickle(again).counts()


def test_a_catalog_behind_a_url_is_the_same_dataset(
    raw_folder: Path, catalog_folder: Path, memory_url: str
) -> None:
    for folder in (raw_folder, catalog_folder):
        url = f"{memory_url}/{folder.name}"
        fsspec.filesystem("memory").put(str(folder), url.removeprefix("memory:/"), recursive=True)
        remote, local = Dataset.from_path("x", url), Dataset.from_path("x", str(folder))
        assert remote == local
        assert remote.counts().tolist() == local.counts().tolist()
        with DatasetInspector(remote) as there, DatasetInspector(local) as here:
            for mine, theirs in zip(there.read_many(1, [1, 0]), here.read_many(1, [1, 0]), strict=True):
                assert {name: str(value) for name, value in mine.items()} == {
                    name: str(value) for name, value in theirs.items()
                }
        assert through_pickle(remote).total == local.total


def test_copies_of_remote_files_go_with_the_dataset(
    raw_folder: Path, memory_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.filesystem("memory").put(str(raw_folder), memory_url.removeprefix("memory:/"), recursive=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    dataset = Dataset.from_path("x", memory_url)
    with DatasetInspector(dataset) as inspector:
        inspector.read(0, 0)
        assert list(scratch.rglob("a.jsonl"))
    assert not list(scratch.rglob("a.jsonl"))
    del dataset, inspector
    assert list(scratch.iterdir()) == []


def test_a_changed_remote_folder_is_refused(raw_folder: Path, memory_url: str) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(raw_folder), memory_url.removeprefix("memory:/"), recursive=True)
    memory.pipe_file(f"{memory_url.removeprefix('memory:/')}/new.jsonl", b"{}\n")
    with pytest.raises(IntegrityError, match=r"new\.jsonl is new"):
        Dataset.from_path("x", memory_url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nowhere-at-all", r"memory://nowhere-at-all: catalog\.json is missing: this is no catalog"),
        ("unknown-scheme://me:secret@x?key=secret", "unknown-scheme://x: cannot be opened"),
    ],
)
def test_a_url_without_a_catalog_is_an_error_that_names_it_and_no_secret(url: str, message: str) -> None:
    with pytest.raises((IntegrityError, InputError), match=message) as raised:
        Dataset.from_path("x", url)
    assert "secret" not in str(raised.value)


ROWS: list[dict[str, Any]] = [{"text": "aé", "n": 1}, {"text": "b", "n": None}]


def test_rows_in_memory_are_shards_with_the_ids_that_were_given() -> None:
    dataset = Dataset.from_dict("m", {7: InMemoryShard(ROWS), 2: [], 5: ROWS[:1]})
    assert dataset.ids().tolist() == [7, 2, 5]
    assert dataset.counts().tolist() == [2, 0, 1]
    raw_bytes = dataset.raw_bytes()
    assert raw_bytes is not None
    assert raw_bytes.tolist() == [4, 0, 3]
    assert dataset.num_tokens() is None
    assert (dataset.total, dataset.max_count, dataset.shard_count, dataset.kind) == (3, 2, 3, "memory")
    assert Dataset.from_dict("m", [ROWS, []]).ids().tolist() == [0, 1]
    with DatasetInspector(dataset) as inspector:
        assert inspector.read(5, 0) == ROWS[0]
        assert inspector.read_many(7, [1, 0]) == [ROWS[1], ROWS[0]]


def test_tokens_in_memory_are_counted() -> None:
    dataset = Dataset.from_dict("m", [[{"tokens": np.arange(3)}, {"tokens": [1]}], []])
    num_tokens = dataset.num_tokens()
    assert num_tokens is not None
    assert num_tokens.tolist() == [4, 0]


@pytest.mark.parametrize("key", [-1, True, "a", 1.0, 2**63, None])
def test_shard_ids_are_integers_from_0_on(key: Any) -> None:
    with pytest.raises(ValueError, match="a shard's id"):
        Dataset.from_dict("m", {key: ROWS})


@pytest.mark.parametrize("shard", ["ab", [1], [ROWS]])
def test_shards_are_sequences_of_rows(shard: Any) -> None:
    with pytest.raises(ValueError, match="row 0: expected a mapping"):
        Dataset.from_dict("m", [shard])


def test_rows_in_memory_are_named_by_their_content() -> None:
    variants: list[Any] = [
        [[{"a": 1}]],
        [[{"a": 1.0}]],
        [[{"a": True}]],
        [[{"a": "1"}]],
        [[{"a": b"1"}]],
        [[{"a": None}]],
        [[{"a": [1]}]],
        [[{"a": np.array([1])}]],
        [[{"a": np.array([1], np.uint16)}]],
        [[{"a": {"b": 1}}]],
        [[{"a": 1}], []],
        [[], [{"a": 1}]],
        {5: [{"a": 1}]},
        [[{"a": 2**70}]],
        [[{"a": "\ud800"}]],
    ]
    fingerprints = [Dataset.from_dict("m", shards).fingerprint for shards in variants]
    assert len(set(fingerprints)) == len(variants)
    assert fingerprints == [Dataset.from_dict("other", shards).fingerprint for shards in variants]
    assert (
        Dataset.from_dict("m", [[{"a": 1, "b": (2,)}]]).fingerprint
        == Dataset.from_dict("m", [[{"b": [2], "a": np.int64(1)}]]).fingerprint
    )


def test_a_row_of_things_without_content_is_refused() -> None:
    dataset = Dataset.from_dict("m", [[{"a": object()}]])
    with pytest.raises(ValueError, match="a row holds a object"):
        _ = dataset.fingerprint


def test_counts_alone_make_a_dataset_that_cannot_be_read() -> None:
    dataset = Dataset.from_counts("c", [3, 0, 2], num_tokens=np.array([30, 0, 20]))
    assert dataset.counts().tolist() == [3, 0, 2]
    assert dataset.ids().tolist() == [0, 1, 2]
    num_tokens = dataset.num_tokens()
    assert num_tokens is not None
    assert num_tokens.tolist() == [30, 0, 20]
    assert dataset.raw_bytes() is None
    assert dataset.total == 5
    with DatasetInspector(dataset) as inspector, pytest.raises(InputError, match="made of counts alone"):
        inspector.read(0, 0)


def test_counts_are_named_by_their_content() -> None:
    variants = [
        Dataset.from_counts("c", [1, 2]),
        Dataset.from_counts("c", [2, 1]),
        Dataset.from_counts("c", [1, 2], num_tokens=[1, 2]),
        Dataset.from_counts("c", [1, 2], raw_bytes=[1, 2]),
        Dataset.from_counts("c", []),
    ]
    assert len({dataset.fingerprint for dataset in variants}) == len(variants)
    assert Dataset.from_counts("d", np.array([1, 2], np.uint8)).fingerprint == variants[0].fingerprint


@pytest.mark.parametrize("counts", [[-1], [1.5], [[1]], ["a"], [2**63], None])
def test_counts_are_integers_from_0_on(counts: Any) -> None:
    with pytest.raises(ValueError, match="counts"):
        Dataset.from_counts("c", counts)


def test_columns_have_one_length() -> None:
    with pytest.raises(ValueError, match="num_tokens: expected 2 shards as in counts, found 1"):
        Dataset.from_counts("c", [1, 2], num_tokens=[1])


def test_a_dataset_without_shards_is_empty() -> None:
    for dataset in (Dataset.from_dict("m", {}), Dataset.from_counts("c", [])):
        assert (dataset.total, dataset.max_count, dataset.shard_count) == (0, 0, 0)
        assert dataset.ids().dtype == dataset.counts().dtype == np.int64


def test_equal_datasets_have_equal_hashes() -> None:
    first, second = (Dataset.from_counts("c", [1, 2]) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != "c"


def test_a_dataset_says_what_made_its_tokens_and_whether_it_is_here(
    catalog_folder: Path, raw_folder: Path, memory_url: str
) -> None:
    tokens = Dataset.from_path("a", str(catalog_folder))
    assert tokens.tokenizer == Catalog.open(catalog_folder).header["tokenizer"]["fingerprint"]
    assert through_pickle(tokens).tokenizer == tokens.tokenizer
    raw, counts = Dataset.from_path("b", str(raw_folder)), Dataset.from_counts("c", [1])
    assert [dataset.tokenizer for dataset in (raw, counts)] == [None, None]
    assert [dataset.is_local for dataset in (tokens, raw, counts)] == [True, True, True]
    fsspec.filesystem("memory").put(str(catalog_folder), memory_url, recursive=True)
    assert not Dataset.from_path("d", memory_url).is_local
