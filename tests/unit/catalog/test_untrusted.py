"""Files that somebody else wrote: they run nothing, and end in an error of ours or in findings."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.errors import IntegrityError, TokenloomError
from prep.catalog.names import HEADER, SHARDS, SOURCES
from prep.catalog.shard import ShardFile
from prep.catalog.verify import verify_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 7
"""Every how many bytes one is flipped; the files of a small job have a few thousand."""


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def read_all(folder: Path) -> None:
    catalog = Catalog.open(folder)
    catalog.shards()
    catalog.sources()


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    return tmp_path / "sprung"


@pytest.mark.parametrize("name", [HEADER, SHARDS, SOURCES])
def test_a_pickle_in_place_of_a_file_is_refused_and_not_loaded(
    catalog_folder: Path, sprung: Path, name: str
) -> None:
    """Case Q77."""
    payload = pickle.dumps(Trap(sprung))
    pickle.loads(payload)  # noqa: S301 - the trap works
    assert sprung.exists()
    sprung.unlink()
    (catalog_folder / name).write_bytes(payload)
    with pytest.raises(IntegrityError, match=name):
        read_all(catalog_folder)
    assert not sprung.exists()


def test_a_pickle_in_place_of_a_shard_is_refused_and_not_loaded(catalog_folder: Path, sprung: Path) -> None:
    """Case Q77."""
    path = min((catalog_folder / "shards").iterdir())
    path.write_bytes(pickle.dumps(Trap(sprung)))
    assert any(
        path.name in finding.where for finding in verify_catalog(Catalog.open(catalog_folder)).findings
    )
    assert not sprung.exists()


def test_a_pickle_in_the_metadata_of_a_shard_is_not_loaded(tmp_path: Path, sprung: Path) -> None:
    """Case Q77."""
    hidden = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Trap(sprung)),
    }
    schema = pa.schema(
        [pa.field("tokens", pa.list_(pa.uint16())), pa.field("x", pa.int64(), metadata=hidden)]
    )
    path = tmp_path / "s.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([{"tokens": [1], "x": 2}], schema=schema))
    with ShardFile(path) as shard:
        assert shard.row(0)["tokens"].tolist() == [1]
    assert not sprung.exists()


def test_an_array_of_objects_in_place_of_a_shard_is_refused(catalog_folder: Path, sprung: Path) -> None:
    """Case Q77."""
    path = min((catalog_folder / "shards").iterdir())
    with path.open("wb") as stream:
        np.save(stream, np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    with pytest.raises(IntegrityError, match=path.name):
        ShardFile(path)
    assert not sprung.exists()


def flips(data: bytes, step: int) -> Iterator[bytes]:
    for position in range(0, len(data), step):
        for bit in (0x01, 0x80):
            yield data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]


def outcome(folder: Path) -> bool:
    """Whether damage is noticed; whatever is no error of ours goes on."""
    try:
        return not verify_catalog(Catalog.open(folder)).ok
    except TokenloomError:
        return True


@pytest.fixture
def small(catalog_folder: Path) -> Path:
    """Without what is not looked at, so that a thousand verifications are quick."""
    shutil.rmtree(catalog_folder / "_job")
    return catalog_folder


@pytest.mark.parametrize("name", [SHARDS, SOURCES])
def test_any_flipped_bit_of_a_table_is_noticed(small: Path, name: str) -> None:
    data = (small / name).read_bytes()
    for damaged in flips(data, 3 * STEP):
        (small / name).write_bytes(damaged)
        assert outcome(small)


def test_any_flipped_bit_of_a_shard_is_noticed(small: Path) -> None:
    path = min((small / "shards").iterdir())
    data = path.read_bytes()
    for damaged in flips(data, STEP):
        path.write_bytes(damaged)
        assert outcome(small)


READS_FLIPPED = """
import sys
from pathlib import Path
from prep.catalog.errors import IntegrityError
from prep.catalog.shard import ShardFile

path = Path(sys.argv[1])
data = path.read_bytes()
for position in range(0, len(data), 11):
    for bit in (0x01, 0x80):
        path.write_bytes(data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :])
        try:
            with ShardFile(path) as shard:
                for row in range(min(len(shard), 100)):
                    shard.row(row)
        except IntegrityError:
            pass
"""


def test_reading_a_row_of_a_damaged_shard_never_ends_the_process(small: Path) -> None:
    path = min((small / "shards").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", READS_FLIPPED, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_flipped_bit_of_the_header_ends_in_anything_but_an_error_of_ours(small: Path) -> None:
    data = (small / HEADER).read_bytes()
    noticed = 0
    for damaged in flips(data, STEP):
        (small / HEADER).write_bytes(damaged)
        noticed += outcome(small)
    assert noticed > len(data) / STEP  # at least one of the two bits of each byte, on average


def test_a_shard_cut_at_any_place_is_noticed(small: Path) -> None:
    path = min((small / "shards").iterdir())
    data = path.read_bytes()
    for size in range(0, len(data), 5 * STEP):
        path.write_bytes(data[:size])
        assert outcome(small)


@pytest.mark.parametrize("value", [None, []])
@pytest.mark.parametrize("name", ["totals", "tokenizer", "identity", "ledger", "checksums"])
def test_a_header_field_of_another_kind_is_noticed(small: Path, name: str, value: Any) -> None:
    header = json.loads((small / HEADER).read_bytes())
    (small / HEADER).write_text(json.dumps({**header, name: value}), encoding="utf-8")
    assert outcome(small)
