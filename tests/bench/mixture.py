"""A mixture of real corpora by samples and by tokens: what is planned, and what is counted in its chunks.

TOKENLOOM_TEST_DATA=... python tests/bench/mixture.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from prep.config import validate
from prep.job import run_job
from runtime.io import Dataset
from runtime.io.token_store import TokenStore
from runtime.work import MixturePlan, StaticMixtureWorkSource, TokenEstimation

WEIGHTS = {"prose": 0.4, "multi": 0.3, "code": 0.2, "short": 0.1}
CHUNK = 1024
HEADINGS = (
    "weights count",
    "dataset",
    "weight",
    "samples",
    "passes",
    "share of samples",
    "of tokens, planned",
    "counted",
)


def prepare(data: Path, out: Path) -> list[Dataset]:
    for name in WEIGHTS:
        config = {
            "name": name,
            "source": {"paths": [str(path) for path in sorted((data / "corpus" / name).iterdir())]},
            "tokenizer": {"path": str(data / "tokenizers" / "gpt2.json")},
            "output": {"path": str(out / name)},
        }
        run_job(validate(config))
    return [Dataset.from_path(name, str(out / name)) for name in WEIGHTS]


def count(source: StaticMixtureWorkSource) -> tuple[np.ndarray, np.ndarray]:
    """Samples and tokens of each dataset in each chunk, read to the end."""
    store = TokenStore(source.datasets_by_id)
    samples, tokens = [], []
    for chunk in iter(source.next_chunk, None):
        found = {int(ids[0, 0]): (len(ids), int(store.find(ids)[1].sum())) for ids in chunk.arrays.values()}
        samples.append([found.get(number, (0, 0))[0] for number in range(len(WEIGHTS))])
        tokens.append([found.get(number, (0, 0))[1] for number in range(len(WEIGHTS))])
    store.close()
    return np.array(samples), np.array(tokens)


def rows(plan: MixturePlan, samples: np.ndarray, tokens: np.ndarray) -> list[str]:
    total_samples, total_tokens = samples.sum(axis=0), tokens.sum(axis=0)
    lines = []
    for number, row in enumerate(plan.datasets):
        assert row.drawn_samples == total_samples[number]
        lines.append(
            f"| {plan.unit} | {row.name} | {row.weight:.1f} | {row.drawn_samples:,} | {row.passes:.3f} | "
            f"{total_samples[number] / total_samples.sum():.5f} | {row.token_share:.5f} | "
            f"{total_tokens[number] / total_tokens.sum():.5f} |"
        )
    return lines


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        datasets = prepare(Path(os.environ["TOKENLOOM_TEST_DATA"]), Path(folder))
        print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
        for estimation in (None, TokenEstimation()):
            source = StaticMixtureWorkSource(
                datasets,
                WEIGHTS,
                chunk_size=CHUNK,
                shuffle_block_size="global",
                token_estimation=estimation,
            )
            plan = source.plan()
            print("\n".join(rows(plan, *count(source))))
        print(f"\n{plan}")


if __name__ == "__main__":
    main()
