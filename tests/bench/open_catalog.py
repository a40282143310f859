"""How long a catalog of a million shards takes to open, and what memory its columns take.

The catalog is synthetic: there are no shards behind it. Each step runs in a fresh process.

    python tests/bench/open_catalog.py [OUT] [--shards 1000000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prep.catalog.catalog import TOTALS, checksum_of, write_header
from prep.catalog.fingerprint import fingerprint
from prep.catalog.names import SHARDS, SOURCES, TOKENIZER
from prep.catalog.schema import HISTOGRAM_BINS, SHARD_TABLE, SOURCE_TABLE

STEPS = {
    "open": "",
    "counts": "dataset.counts()",
    "counts, tokens, bytes": "dataset.counts(); dataset.num_tokens(); dataset.raw_bytes()",
    "total": "dataset.total",
    "fingerprint": "dataset.fingerprint",
}
CHILD = """
import json, time
import runtime, prep.catalog.fingerprint, pyarrow.parquet
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
began = time.perf_counter()
dataset = runtime.Dataset.from_path("big", {folder!r})
{step}
seconds = time.perf_counter() - began
print(json.dumps([seconds, peak() - before]))
"""


def make_catalog(folder: Path, count: int) -> None:
    """Write the tables and the header of a catalog of `count` shards."""
    draw = np.random.default_rng(7)
    documents = draw.integers(1_000, 100_000, count, np.uint64)
    columns = {
        field.name: pa.array(np.zeros(count, field.type.to_pandas_dtype()))
        for field in SHARD_TABLE
        if pa.types.is_integer(field.type)
    }
    columns |= {
        "index": pa.array(np.arange(count, dtype=np.uint32)),
        "path": pa.array([f"shards/big-00000-{index:06}.arrow" for index in range(count)]),
        "num_documents": pa.array(documents),
        "num_tokens": pa.array(documents * np.uint64(500)),
        "text_bytes": pa.array(documents * np.uint64(2000)),
        "file_bytes": pa.array(documents * np.uint64(1010)),
        "checksum": pa.array(draw.integers(0, 2**64, count, np.uint64)),
        "length_histogram": pa.ListArray.from_arrays(
            np.arange(count + 1, dtype=np.int32) * HISTOGRAM_BINS,
            pa.array(draw.integers(0, 5_000, count * HISTOGRAM_BINS, np.uint64)),
        ),
    }
    table = pa.table([columns[field.name] for field in SHARD_TABLE], schema=SHARD_TABLE)
    pq.write_table(table, folder / SHARDS, compression="zstd", store_schema=False)
    pq.write_table(pa.table({name: [] for name in SOURCE_TABLE.names}, schema=SOURCE_TABLE), folder / SOURCES)
    identity = {"name": "big"}
    write_header(
        folder,
        {
            "name": "big",
            "kind": "tokens",
            "data_format": "arrow",
            "token_dtype": "uint16",
            "identity": identity,
            "identity_fingerprint": fingerprint(identity),
            "checksums": {name: checksum_of((folder / name).read_bytes()) for name in (SHARDS, SOURCES)}
            | {TOKENIZER: "0" * 16},
            "totals": dict.fromkeys(TOTALS, 0) | {"num_shards": count, "num_sources": 0},
            "tokenizer": {
                "fingerprint": "",
                "vocab_size": 0,
                "control_ids": {},
                "bos_id": None,
                "eos_id": None,
            },
            "ledger": {"read": 0, "written": 0, "rejected": {}},
        },
    )


def measure(folder: Path) -> None:
    """Print seconds and memory of each step."""
    print(f"{SHARDS}: {(folder / SHARDS).stat().st_size / 1e6:.0f} MB")
    for name, step in STEPS.items():
        code = CHILD.format(folder=str(folder), step=step)
        runs = [
            json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
            for _ in range(3)
        ]
        wall, memory = min(run[0] for run in runs), max(run[1] for run in runs)
        print(f"{name:<24} {wall:>7.3f} s {memory / 1024:>7.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--shards", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / SHARDS).exists():
            make_catalog(folder, options.shards)
        measure(folder)


if __name__ == "__main__":
    main()
