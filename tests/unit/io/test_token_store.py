"""References to tokens in shards: where they point, what is kept open, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep.catalog.errors import IntegrityError
from runtime.blocks import REF_SHIFT
from runtime.io import Dataset, token_store
from runtime.io.token_store import TokenColumn, TokenStore

if TYPE_CHECKING:
    from collections.abc import Sequence

Batches = list[list[list[int]]]
"""Record batches of documents of ids."""


def write(path: Path, batches: Batches, kind: Any = None, compression: str | None = None) -> Path:
    """A shard with a column before the tokens and one behind them."""
    kind = kind or pa.list_(pa.uint16())
    schema = pa.schema([("source_row", pa.uint64()), ("tokens", kind), ("id", pa.string())])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, schema, options=options) as writer:
        for documents in batches:
            columns = {
                "source_row": range(len(documents)),
                "tokens": documents,
                "id": [f"d{row}" for row in range(len(documents))],
            }
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return path


@dataclass
class Shards:
    """A dataset that is a list of files."""

    files: Sequence[Path]
    kind: str = "tokens"

    @property
    def shard_count(self) -> int:
        return len(self.files)

    def shard_file(self, shard: int) -> Path:
        return self.files[shard]


def store(*datasets: Any) -> TokenStore:
    return TokenStore(dict(enumerate(datasets)))


def read(opened: TokenStore, *samples: tuple[int, int, int]) -> list[list[int]]:
    refs, lengths = opened.find(np.array(samples, np.int64).reshape(-1, 3))
    found = []
    for ref, length in zip(refs.tolist(), lengths.tolist(), strict=True):
        place, first = ref >> REF_SHIFT, ref & ((1 << REF_SHIFT) - 1)
        found.append(opened.column(place).view[first : first + length].tolist())
    return found


documents_of_batches = st.lists(
    st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=6), max_size=4
)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@given(batches=documents_of_batches, wide=st.booleans(), data=st.data())
def test_tokens_are_those_that_arrow_reads(
    compression: str | None,
    batches: Batches,
    wide: bool,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Empty documents, empty record batches and shards without rows are ordinary."""
    kind = pa.list_(pa.uint32() if wide else pa.uint16())
    path = write(tmp_path_factory.mktemp("shard") / "a.arrow", batches, kind, compression)
    expected = [document for documents in batches for document in documents]
    rows = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=10)) if expected else []
    opened = store(Shards([path]))
    assert read(opened, *[(0, 0, row) for row in rows]) == [expected[row] for row in rows]
    column = TokenColumn(path)
    assert column.tokens.dtype == (np.uint32 if wide else np.uint16)
    starts, counts = column.find(np.arange(len(expected)))
    assert [
        column.view[first : first + size].tolist() for first, size in zip(starts, counts, strict=True)
    ] == expected


def test_samples_of_several_datasets_come_in_the_order_asked_for(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.arrow", [[[n, row] for row in range(3)]]) for n in range(40)]
    opened = store(Shards(files[:10]), Shards([], kind="raw"), Shards(files[10:]))
    assert (opened.holds(0), opened.holds(1), opened.holds(2)) == (True, False, True)
    samples = [
        ((0 if n < 10 else 2), (n if n < 10 else n - 10), row) for n in (39, 3, 12, 3, 0) for row in (2, 0)
    ]
    assert read(opened, *samples) == [[n, row] for n in (39, 3, 12, 3, 0) for row in (2, 0)]
    everything = [(0, n, row) for row in range(3) for n in range(10)]  # no two neighbours of one shard
    assert read(opened, *everything) == [[n, row] for row in range(3) for n in range(10)]
    assert read(opened) == []


def test_uncompressed_shards_are_mapped_and_compressed_ones_decoded(tmp_path: Path) -> None:
    documents = [[list(range(100))] * 50] * 2
    mapped = TokenColumn(write(tmp_path / "a.arrow", documents))
    decoded = TokenColumn(write(tmp_path / "b.arrow", documents, compression="zstd"))
    assert mapped.private_bytes == 0
    assert decoded.private_bytes >= 2 * 50 * 100 * 2
    for column in (mapped, decoded):
        assert not column.tokens.flags.writeable


def test_a_mapped_shard_holds_no_descriptor(tmp_path: Path) -> None:
    opened = store(Shards([write(tmp_path / f"{n}.arrow", [[[n]]]) for n in range(20)]))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert read(opened, *[(0, n, 0) for n in range(20)]) == [[n] for n in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_only_so_many_shards_are_open_and_what_was_given_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "MAX_MAPPED", 3)
    opened = store(Shards([write(tmp_path / f"{n}.arrow", [[[n, n]]]) for n in range(10)]))
    views = [opened.column(place).view for place in range(10)]
    assert list(opened._open) == [7, 8, 9]
    opened.column(7)
    opened.column(0)
    assert list(opened._open) == [9, 7, 0]
    assert read(opened, *[(0, n, 0) for n in range(10)]) == [[n, n] for n in range(10)]
    opened.close()
    assert not opened._open
    assert all(n in view[: len(view)].tolist() for n, view in enumerate(views))


def test_decoded_shards_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / f"{n}.arrow", [[[n] * 1000]], compression="zstd") for n in range(6)]
    size = TokenColumn(files[0]).private_bytes
    monkeypatch.setattr(token_store, "MAX_DECODED_BYTES", 2 * size)
    opened = store(Shards(files))
    for place in range(6):
        opened.column(place)
    assert list(opened._open) == [4, 5]
    monkeypatch.setattr(token_store, "MAX_DECODED_BYTES", 1)
    opened.column(0)
    assert list(opened._open) == [0], "one is always open, however large"


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", [[[1, 2]] * 100] * 3)
    whole = path.read_bytes()
    for content in (b"", b"ARROW1", whole[:200], whole[: len(whole) // 2], whole[:-1], b"x" * len(whole)):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match=r"a\.arrow: cannot be read as a token shard"):
            TokenColumn(path)
    path.unlink()
    with pytest.raises(IntegrityError, match=r"a\.arrow: cannot be read as a token shard"):
        TokenColumn(path)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.uint16()), pa.string()])
def test_another_type_is_named(tmp_path: Path, kind: pa.DataType) -> None:
    documents: Any = [["1"]] if kind == pa.string() else [[[1]]]
    path = write(tmp_path / "a.arrow", documents, kind)
    with pytest.raises(IntegrityError, match="field tokens: expected lists of uint16 or uint32, found "):
        TokenColumn(path)


def test_offsets_outside_of_the_file_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", [[[7] * 11, [8] * 13]])
    offsets = np.array([0, 11, 24], np.int32).tobytes()
    whole = path.read_bytes()
    assert whole.count(offsets) == 1
    for wrong in ([0, 11, 1 << 30], [0, 30, 24]):
        path.write_bytes(whole.replace(offsets, np.array(wrong, np.int32).tobytes()))
        with pytest.raises(
            IntegrityError, match=r"a\.arrow: field tokens: offsets point outside of the file"
        ):
            store(Shards([path])).find(np.array([[0, 0, 0], [0, 0, 1]]))


def test_a_shard_that_changed_size_since_the_catalog_is_named(catalog_folder: Path) -> None:
    dataset = Dataset.from_path("a", str(catalog_folder))
    path = dataset.shard_file(1)
    path.write_bytes(path.read_bytes()[:-100])
    opened = TokenStore({0: dataset})
    opened.find(np.array([[0, 0, 0]]))
    with pytest.raises(IntegrityError, match=rf"{path.name}: expected [\d,]+ bytes as the catalog says"):
        opened.find(np.array([[0, 1, 0]]))
