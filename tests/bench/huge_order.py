"""A global shuffle of 10^10 samples in 10^6 shards: ids at random places, memory, time, state.

python tests/bench/huge_order.py
"""

from __future__ import annotations

import json
import time

import numpy as np
import psutil

from runtime.io import Dataset
from runtime.work import StaticMixtureWorkSource

SAMPLES, SHARDS = 10**10, 10**6


def source_of(dataset: Dataset) -> StaticMixtureWorkSource:
    return StaticMixtureWorkSource([dataset], {"web": 1}, seed=1, shuffle_block_size="global")


def main() -> None:
    process = psutil.Process()
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(SAMPLES, np.full(SHARDS, 1 / SHARDS))
    dataset = Dataset.from_counts("web", sizes)
    assert dataset.fingerprint
    before = process.memory_info().rss
    began = time.perf_counter()
    source = source_of(dataset)
    made = time.perf_counter()
    source.next_chunk()
    first = time.perf_counter()
    state = source.state_dict()
    resumed = source_of(dataset)
    restoring = time.perf_counter()
    resumed.load_state_dict(state)
    restored = time.perf_counter()
    for place in rng.integers(0, SAMPLES, 5).tolist():
        print(f"place {place:>13,}: {source.sample_id_at(place)}")
    print(
        f"made in {1e3 * (made - began):.1f} ms, first chunk after {1e3 * (first - made):.1f} ms, "
        f"restored in {1e3 * (restored - restoring):.1f} ms, "
        f"memory grew by {(process.memory_info().rss - before) / 1e6:.0f} MB, "
        f"state of {len(json.dumps(state)):,} bytes"
    )


if __name__ == "__main__":
    main()
