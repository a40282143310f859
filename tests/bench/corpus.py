"""Makes a corpus of a given size from the real one, for benchmarks.

The rows of `$TOKENLOOM_TEST_DATA/corpus` are repeated with a changed id and a short unique prefix in the
text, so that caches do not flatter. Nothing is made that is there already.

    python tests/bench/corpus.py OUT --bytes 300MB --format jsonl [--files 4] [--only prose,short]
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from prep.config import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMATS = ("jsonl", "parquet", "zst", "gz")
GROUP_ROWS = 2_000


def test_data() -> Path:
    """The folder with real corpora and tokenizers."""
    folder = os.environ.get("TOKENLOOM_TEST_DATA")
    if not folder:
        sys.exit("set TOKENLOOM_TEST_DATA to the folder with corpus/ and tokenizers/")
    return Path(folder)


def base_rows(kinds: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of the real corpus, in a fixed order."""
    rows: list[dict[str, str]] = []
    for kind in kinds:
        for path in sorted((test_data() / "corpus" / kind).iterdir()):
            rows += _rows(path)
    return rows


def _rows(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".gz":
        return [orjson.loads(line) for line in gzip.open(path)]
    with path.open("rb") as raw:
        stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return [orjson.loads(line) for line in io.BufferedReader(stream)]


def rows_of_size(kinds: tuple[str, ...], total: int) -> Iterator[dict[str, str]]:
    """Rows until their text has `total` bytes."""
    base, size, lap = base_rows(kinds), 0, 0
    while True:
        for row in base:
            text = f"{lap:03d}{row['id'][-5:]} {row['text']}"
            yield {"id": f"{row['id']}-{lap}", "text": text}
            size += len(text.encode())
            if size >= total:
                return
        lap += 1


def make_corpus(out: Path, total: int, fmt: str, files: int, kinds: tuple[str, ...]) -> Path:
    """Write the corpus as `files` files of equal text; returns the folder."""
    if (out / "done").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    share, size, number = total / files, 0.0, 0
    sink = _Sink(out, fmt, 0)
    for row in rows_of_size(kinds, total):
        if size >= share * (number + 1) and number + 1 < files:
            sink.close()
            number += 1
            sink = _Sink(out, fmt, number)
        sink.write(row)
        size += len(row["text"].encode())
    sink.close()
    (out / "done").touch()
    return out


class _Sink:
    """One file of the corpus."""

    def __init__(self, out: Path, fmt: str, number: int) -> None:
        suffix = {"jsonl": "jsonl", "parquet": "parquet", "zst": "jsonl.zst", "gz": "jsonl.gz"}[fmt]
        path = out / f"{number:05d}.{suffix}"
        self._rows: list[dict[str, str]] = []
        self._stream: Any = None
        self._writer: Any = None
        if fmt == "parquet":
            schema = pa.schema([("id", pa.string()), ("text", pa.string())])
            self._writer = pq.ParquetWriter(path, schema, compression="zstd")
            self._schema = schema
        else:
            raw: BinaryIO = path.open("wb")
            openers = {
                "zst": zstandard.ZstdCompressor(3).stream_writer,
                "gz": lambda out: gzip.GzipFile(fileobj=out, mode="wb"),
            }
            self._stream = openers[fmt](raw) if fmt in openers else raw

    def write(self, row: dict[str, str]) -> None:
        if self._stream is not None:
            self._stream.write(orjson.dumps(row) + b"\n")
            return
        self._rows.append(row)
        if len(self._rows) == GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            return
        if self._rows:
            self._flush()
        self._writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", default="300MB")
    parser.add_argument("--format", choices=FORMATS, default="jsonl")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--only", default="prose,multi,code,short")
    options = parser.parse_args()
    kinds = tuple(options.only.split(","))
    print(make_corpus(options.out, parse_size(options.bytes), options.format, options.files, kinds))


if __name__ == "__main__":
    main()
