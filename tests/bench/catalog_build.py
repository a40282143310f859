"""How fast raw files become a catalog, per second and per second of processor time.

Corpora are made by `corpus.py` under OUT and kept. The floor is what has to be done with the library calls
alone: read, checksum, split and parse for JSONL; read, checksum and decode the text column for Parquet.

    python tests/bench/catalog_build.py OUT [--bytes 300MB] [--formats jsonl,parquet,zst] [--workers 0]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import psutil
import pyarrow.parquet as pq
import xxhash
from corpus import make_corpus

from prep.config import parse_size
from prep.index import build_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("prose", "multi", "code", "short")


def floor(folder: Path) -> None:
    """Read every file with nothing but the libraries."""
    for path in sorted(folder.glob("[0-9]*")):
        data = path.read_bytes()
        xxhash.xxh3_64_intdigest(data)
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                file.read_row_group(group, columns=["text"], use_threads=False)
        else:
            for line in data.split(b"\n"):
                if line:
                    orjson.loads(line)["text"]


def seconds(act: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor seconds, children included, of a call."""
    process = psutil.Process()
    before, began = process.cpu_times(), time.perf_counter()
    act()
    wall, after = time.perf_counter() - began, process.cpu_times()
    spent = sum(
        getattr(after, name) - getattr(before, name)
        for name in ("user", "system", "children_user", "children_system")
    )
    return wall, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", default="300MB")
    parser.add_argument("--formats", default="jsonl,parquet,zst")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{'format':<9} {'file MB':>8} {'text MB':>8} {'file MB/s':>10} {'file MB/cpu-s':>14} ", end="")
    print(f"{'text MB/cpu-s':>14} {'floor file MB/cpu-s':>20}")
    for fmt in options.formats.split(","):
        folder = make_corpus(options.out / fmt, parse_size(options.bytes), fmt, 2, KINDS)
        done = folder / "done"  # the mark of a complete corpus has no suffix of data
        done.unlink()
        try:
            summary = build_catalog(folder, rebuild=True)
            runs = [
                seconds(lambda where=folder: build_catalog(where, rebuild=True, workers=options.workers))
                for _ in range(options.runs)
            ]
            bare = []
            if fmt != "zst":
                bare = [seconds(lambda where=folder: floor(where))[1] for _ in range(options.runs)]
        finally:
            done.touch()
        wall, spent = (statistics.median(column) for column in zip(*runs, strict=True))
        size, text = summary.file_bytes / 1e6, (summary.text_bytes or 0) / 1e6
        print(f"{fmt:<9} {size:>8.0f} {text:>8.0f} {size / wall:>10.0f} {size / spent:>14.0f} ", end="")
        print(f"{text / spent:>14.0f} " + (f"{size / statistics.median(bare):>20.0f}" if bare else ""))


if __name__ == "__main__":
    main()
