"""Arrow files and streams: batches, columns that are not asked for, damage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from prep.catalog.errors import InputError
from prep.readers.arrow import schema_of, stream_batches
from prep.readers.block import ReadOptions
from prep.readers.tabular import documents_of

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = ReadOptions()
TABLE = pa.table({"n": list(range(10)), "text": [f"text {row}" for row in range(10)], "k": ["x"] * 10})


def _ipc(path: Path, table: pa.Table, make: Callable[..., Any], compression: str | None = None) -> str:
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema, options=options) as writer:
        writer.write_table(table, 4)
    return str(path)


def write_file(path: Path, table: pa.Table, compression: str | None = None) -> str:
    return _ipc(path, table, pa.ipc.new_file, compression)


def write_stream(path: Path, table: pa.Table, compression: str | None = None) -> str:
    return _ipc(path, table, pa.ipc.new_stream, compression)


def texts(path: str, options: ReadOptions = OPTIONS) -> list[str]:
    found: list[str] = []
    for batch in stream_batches(path, options):
        found += documents_of(path, pa.Table.from_batches([batch]), options).texts
    return found


@pytest.mark.parametrize("write", [write_file, write_stream])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_files_and_streams_give_the_same_texts(
    tmp_path: Path, write: Callable[..., str], compression: str | None, kind: pa.DataType
) -> None:
    column = TABLE["text"].combine_chunks()
    column = column.cast(pa.binary()) if kind == pa.binary() else column.cast(kind)
    path = write(tmp_path / "a.arrow", TABLE.set_column(1, "text", column), compression)
    assert texts(path) == [f"text {row}" for row in range(10)]
    batches = list(stream_batches(path, OPTIONS))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert [batch.schema.names for batch in batches] == [["text"]] * 3
    assert schema_of(path).names == ["n", "text", "k"]


def test_feather_files_are_arrow_files(tmp_path: Path) -> None:
    path = tmp_path / "a.feather"
    feather.write_feather(TABLE, path, compression="zstd")
    assert texts(str(path)) == [f"text {row}" for row in range(10)]
    path.write_bytes(b"FEA1" + b"the first version" + b"FEA1")
    with pytest.raises(InputError, match=r"a\.feather"):
        texts(str(path))


def test_columns_come_by_name_whatever_their_order(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.arrow", TABLE)
    options = ReadOptions(text_field="k", id_field="text", kept=(("n", pa.int64()),))
    [first, *_] = stream_batches(path, options)
    found = documents_of(path, pa.Table.from_batches([first]), options)
    assert found.texts == ["x"] * 4
    assert found.ids is not None
    assert found.ids.to_pylist() == [f"text {row}" for row in range(4)]
    assert found.kept[0].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_dictionaries_are_decoded_with_those_that_follow(tmp_path: Path, write: Callable[..., str]) -> None:
    words = ["a", "b", "a", None, "b", "c", "d", "c", "e", "a"]
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(indices, pa.int32()), pa.array(["a", "b", "c", "d", "e"][:known])
        )
        for indices, known in (([0, 1, 0, None], 2), ([1, 2, 3, 2], 4), ([4, 0], 5))
    ]
    path = write(tmp_path / "a.arrow", pa.table({"text": pa.chunked_array(chunks)}))
    assert texts(path, ReadOptions(on_bad_record="skip")) == [word for word in words if word]


def test_a_stream_may_replace_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batches = [
        pa.record_batch({"text": pa.array(words).dictionary_encode()})
        for words in (["a", "b"], ["c", "a"], ["d"])
    ]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert texts(str(path)) == ["a", "b", "c", "a", "d"]


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_columns_that_are_not_asked_for_are_never_decompressed_q07(
    tmp_path: Path, write: Callable[..., str]
) -> None:
    noise = np.random.default_rng(3).bytes(4000)
    table = TABLE.append_column("noise", pa.array([{"deep": [noise]}] * 10))
    path = Path(write(tmp_path / "a.arrow", table, "zstd"))
    data = bytearray(path.read_bytes())
    start, ruined = 0, 0
    while (place := data.find(noise[:16], start)) >= 0:
        begin = data.rindex(b"\x28\xb5\x2f\xfd", 0, place)
        data[begin : begin + 4] = b"\0\0\0\0"
        start, ruined = place + 1, ruined + 1
    assert ruined >= 3
    path.write_bytes(data)
    assert texts(str(path)) == [f"text {row}" for row in range(10)]
    with pytest.raises(InputError, match=r"a\.arrow"):
        texts(str(path), ReadOptions(kept=(("noise", pa.string()),), declared=frozenset(["noise"])))


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_a_missing_column_lists_those_that_are_there_q66(tmp_path: Path, write: Callable[..., str]) -> None:
    path = write(tmp_path / "a.arrow", TABLE)
    with pytest.raises(
        InputError, match=r"a\.arrow: source\.text_field 'content' is no column; found: n, text, k"
    ):
        texts(path, ReadOptions(text_field="content"))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_a_file_cut_anywhere_is_an_error_q01(
    tmp_path: Path, write: Callable[..., str], compression: str | None
) -> None:
    good = Path(write(tmp_path / "a.arrow", TABLE, compression)).read_bytes()
    for length in [*range(0, len(good), 23), *range(len(good) - 12, len(good))]:
        path = tmp_path / f"cut-{length}.arrow"
        path.write_bytes(good[:length])
        with pytest.raises(InputError, match=f"cut-{length}"):
            texts(str(path))


def test_a_stream_cut_between_batches_is_an_error_q01(tmp_path: Path) -> None:
    """Arrow itself takes such a file for a whole one."""
    path = tmp_path / "a.arrow"
    with path.open("wb") as stream, pa.ipc.new_stream(stream, TABLE.schema) as writer:
        writer.write_table(TABLE, 4)
        size = stream.tell()
    path.write_bytes(path.read_bytes()[:size])
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        assert reader.read_all().num_rows == 10
    with pytest.raises(InputError, match="without its end mark"):
        texts(str(path))


@pytest.mark.parametrize(
    "data",
    [b"", b"ARROW1", b"ARROW1\0\0" + b"x" * 100 + b"ARROW1", b'{"text": "a"}\n', b"\xff\xff\xff\xff\0\0\0\0"],
)
def test_another_file_is_an_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.arrow"):
        texts(str(path))
    with pytest.raises(InputError, match=r"missing\.arrow"):
        texts(str(tmp_path / "missing.arrow"))


READ = """
import json, sys
import pyarrow as pa
from prep.catalog.errors import InputError
from prep.pipeline.channel import Payload
from prep.pipeline.messages import LocalFile, StreamRequest
from prep.pipeline.reader import read_span, read_stream
from prep.readers.block import ReadOptions
path = sys.argv[1]
options = ReadOptions(id_field="id", kept=(("k", pa.string()),), on_bad_record="skip", on_bad_text="replace")
request = StreamRequest(0, LocalFile(path, 0, "arrow"), 0)
try:
    texts = []
    for span, batch in read_stream(request, options, 10):
        payload = Payload.of([batch])
        texts += read_span(span, request.file, payload, options).texts
    print(json.dumps(texts))
except InputError as error:
    print(json.dumps(str(error)))
"""
OFFSETS = np.arange(0, 25, 6, dtype=np.int32)


@pytest.mark.parametrize("column", ["text", "id", "k"])
@pytest.mark.parametrize(("place", "value"), [(1, 2**31 - 16), (2, -5), (3, 3), (4, 10**6)])
def test_damaged_offsets_are_an_error_and_no_crash_q01(
    tmp_path: Path, column: str, place: int, value: int
) -> None:
    """An uncompressed Arrow file has no checksum: what it points at has to be looked at before it is used."""
    names = {"text": "T", "id": "I", "k": "K"}
    table = pa.table({name: [f"{letter}{row:05}" for row in range(4)] for name, letter in names.items()})
    path = Path(write_file(tmp_path / "a.arrow", table))
    data, begin = bytearray(path.read_bytes()), -1
    for _ in range(list(names).index(column) + 1):
        begin = data.index(OFFSETS.tobytes(), begin + 1)
    damaged = OFFSETS.copy()
    damaged[place] = value
    data[begin : begin + damaged.nbytes] = damaged.tobytes()
    path.write_bytes(data)
    command = [sys.executable, "-c", READ, path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-500:]}"
    found = json.loads(done.stdout)
    assert isinstance(found, str), f"read as {found}"
    assert "a.arrow" in found
