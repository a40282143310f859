"""What an order costs: sample ids a CPU-second of `next_chunk`, one core, default chunk size.

python tests/bench/order.py [--chunks 200]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from runtime.io import Dataset
from runtime.work import StaticMixtureWorkSource

SAMPLES = 10**10
SHUFFLES: dict[str, dict[str, Any]] = {
    "none": {"shuffle_shards": False},
    "shards": {},
    "shards, rows, blocks": {"shuffle_within_shard": True, "shuffle_block_size": "auto"},
    "global": {"shuffle_block_size": "global"},
}
TAKES = 5


def ids_per_second(shards: int, lanes: int, chunks: int, **shuffle: Any) -> float:
    """Millions of ids a CPU-second, the median of some takes."""
    dataset = Dataset.from_counts("data", np.full(shards, SAMPLES // shards))
    source = StaticMixtureWorkSource([dataset], {"data": 1}, **shuffle)
    source.chunk_at(0)  # tables
    streams = [source] if lanes == 1 else [source.clone_for_lane(lane, lanes) for lane in range(lanes)]
    rates = []
    for take in range(TAKES):
        began, count = time.process_time(), 0
        for turn in range(chunks):
            chunk = streams[(take * chunks + turn) % lanes].next_chunk()
            assert chunk is not None
            count += len(chunk)
        rates.append(count / (time.process_time() - began) / 1e6)
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=200)
    options = parser.parse_args()
    print("M ids per CPU-second      1,000 shards  1,000,000 shards  1,000 shards, 1,024 lanes")
    for name, shuffle in SHUFFLES.items():
        few = ids_per_second(1000, 1, options.chunks, **shuffle)
        many = ids_per_second(10**6, 1, options.chunks, **shuffle)
        lanes = ids_per_second(1000, 1024, options.chunks, **shuffle)
        print(f"{name:<24}  {few:>12.1f}  {many:>16.1f}  {lanes:>25.1f}")


if __name__ == "__main__":
    main()
