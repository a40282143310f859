"""Catalogs of raw files and rows by index, against a plain model of what is in a file."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from prep import scanning
from prep.catalog.errors import InputError
from prep.catalog.raw import offsets_file
from prep.index import build_catalog
from prep.readers import scan
from prep.readers.rows import open_rows

BOM = b"\xef\xbb\xbf"

values = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5)
records = st.fixed_dictionaries(
    {}, optional={"text": st.none() | st.text(max_size=40), "n": values, "more": st.lists(values, max_size=3)}
)
blanks = st.sampled_from([b"", b" ", b"\t \r", b"\r"])
lines = st.builds(
    lambda record, ascii_only, end: (
        json.dumps(record, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + end
    ),
    records,
    st.booleans(),
    st.sampled_from([b"", b"\r", b" "]),
)


def model(data: bytes) -> tuple[list[int], list[dict[str, Any]]]:
    """Where rows begin, and the rows: a line is what lies between two line feeds; blank ones are no rows."""
    begins, rows, place = [], [], 0
    if data.startswith(BOM):
        place = len(BOM)
    for line in data[place:].split(b"\n"):
        if line.strip():
            begins.append(place)
            rows.append(json.loads(line))
        place += len(line) + 1
    return begins, rows


@settings(max_examples=60, deadline=None)
@given(
    content=st.lists(lines | blanks, max_size=30),
    bom=st.booleans(),
    last=st.booleans(),
    suffix=st.sampled_from(["", ".gz", ".zst"]),
    block=st.integers(1, 200),
    cut=st.integers(1, 300),
    data=st.data(),
)
def test_a_jsonl_file_has_the_rows_of_the_plain_model(
    *, content: list[bytes], bom: bool, last: bool, suffix: str, block: int, cut: int, data: st.DataObject
) -> None:
    text = (BOM if bom else b"") + b"\n".join(content) + (b"\n" if last else b"")
    begins, rows = model(text)
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(scan, "BLOCK_BYTES", block)
        patch.setattr(scanning, "RANGE_BYTES", cut)
        file = folder / f"x.jsonl{suffix}"
        file.write_bytes(pack(text))
        # Ranges are for workers; here they are scanned without any.
        patch.setattr(
            scanning, "run_tasks", lambda tasks, work, _: (pair for pair in enumerate(map(work, tasks)))
        )
        summary = build_catalog(folder, workers=2)
        stored = np.fromfile(folder / offsets_file(file.name), "<u8").tolist()
        assert stored == [*begins, len(text)]
        texts = [row["text"] for row in rows if row.get("text") is not None]
        assert summary.rows == len(rows)
        expected = sum(len(found.encode("utf-8", "surrogatepass")) for found in texts) if texts else None
        assert summary.text_bytes == expected
        assert summary.without_text == len(rows) - len(texts)
        wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
        for offsets in (folder / offsets_file(file.name), None):
            with open_rows(file, "jsonl", offsets=offsets) as reader:
                assert reader.read(wanted) == [rows[index] for index in wanted]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
                "n": st.none() | st.integers(-5, 5),
                "more": st.none() | st.lists(st.integers(0, 3), max_size=3),
            }
        ),
        max_size=30,
    ),
    size=st.integers(1, 10),
    fmt=st.sampled_from(["parquet", "arrow", "zstd", "stream"]),
    data=st.data(),
)
def test_tables_have_the_rows_that_were_written(
    rows: list[dict[str, Any]], size: int, fmt: str, data: st.DataObject
) -> None:
    schema = pa.schema([("text", pa.string()), ("n", pa.int64()), ("more", pa.list_(pa.int64()))])
    table = pa.Table.from_pylist(rows, schema=schema)
    out = io.BytesIO()
    if fmt == "parquet":
        pq.write_table(table, out, row_group_size=size)
    else:
        new = pa.ipc.new_stream if fmt == "stream" else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression="zstd" if fmt == "zstd" else None)
        with new(out, schema, options=options) as writer:
            writer.write_table(table, max_chunksize=size)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / ("x.parquet" if fmt == "parquet" else "x.arrow")
        file.write_bytes(out.getvalue())
        summary = build_catalog(name)
        texts = [row["text"] for row in rows if row["text"] is not None]
        assert summary.rows == len(rows)
        assert summary.text_bytes == (sum(len(text.encode()) for text in texts) if texts else None)
        wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
        with open_rows(file, summary.format) as reader:
            assert reader.read(wanted) == [rows[index] for index in wanted]
            with pytest.raises(InputError):
                reader.read([len(rows)])
