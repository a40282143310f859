"""What reading costs: tokens a CPU-second of packed batches, beside the floor of the same run.

Makes token shards of the real corpora (90 MB each of prose, manual pages in ten languages and code, 40 MB of
dictionary entries; GPT-2 ids) in FOLDER unless they are there, and runs every case in a process of its own.
The floor copies random windows from a mapped array, stacks them and widens them to int64: no documents, no
positions, no order. It is taken in its fastest form, and in that of most training scripts, which widen each
window of an `np.memmap`. Short rounds of the floor and of the pipeline alternate; medians are shown.

    python tests/bench/stream.py FOLDER [--rounds 15] [--only wrap,fill,...]
"""

from __future__ import annotations

import argparse
import json
import mmap
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from runtime import Pipeline

MEGABYTES = {"prose": 90, "code": 90, "multi": 90, "short": 40}
WEIGHTS = {"prose": 0.4, "code": 0.3, "multi": 0.2, "short": 0.1}
LENGTH, ROWS = 2049, 8
BATCH = LENGTH * ROWS

SPEED: dict[str, dict[str, Any]] = {
    "wrap": {},
    "wrap + shuffle 8192": {"shuffle": 8192},
    "wrap + ensure_mixture": {"mixture": True},
    "best_fit 32": {"algorithm": "best_fit", "bins": 32},
    "first_fit 32": {"algorithm": "first_fit", "bins": 32},
    "best_fit_wrap 32": {"algorithm": "best_fit_wrap", "bins": 32},
    "short alone, wrap": {"names": ["short"]},
    "wrap, 64 lanes": {"lanes": 64},
    "wrap, threads": {"runner": "threads"},
}
PACED: dict[str, dict[str, Any]] = {
    f"{runner}, {pause or 'no'} ms between batches": {"runner": runner, "pause": pause}
    for pause in (0, 1, 10)
    for runner in ("inline", "threads")
}
FILL: dict[str, dict[str, Any]] = {
    "wrap": {},
    **{
        f"{algorithm} {bins}": {"algorithm": algorithm, "bins": bins}
        for algorithm, bins in (
            ("first_fit", 32),
            ("first_fit", 256),
            ("best_fit", 32),
            ("best_fit", 256),
            ("best_fit_wrap", 32),
        )
    },
}


# --- the data


def prepare(folder: Path) -> None:
    """Shards of each corpus, and one flat file of ids for the floor."""
    from corpus import make_corpus, test_data

    from prep.config import validate
    from prep.job import run_job

    for kind, size in MEGABYTES.items():
        if not (folder / kind / "catalog.json").exists():
            texts = make_corpus(folder / f"corpus-{kind}", size * 10**6, "jsonl", 4, (kind,))
            config = {
                "name": kind,
                "source": {"paths": str(texts / "*.jsonl")},
                "tokenizer": {"path": str(test_data() / "tokenizers" / "gpt2.json")},
                "output": {"path": str(folder / kind), "shard_size": "8MB"},
            }
            run_job(validate(config))
    if not (folder / "flat.bin").exists():
        with (folder / "flat.bin").open("wb") as out:
            for ids in shard_ids(folder):
                out.write(ids.data)


def shard_ids(folder: Path) -> Iterator[NDArray[Any]]:
    import pyarrow as pa

    for kind in MEGABYTES:
        for path in sorted((folder / kind / "shards").glob("*.arrow")):
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                for number in range(reader.num_record_batches):
                    yield np.ascontiguousarray(reader.get_batch(number)["tokens"].flatten().to_numpy())


def make_pipeline(folder: Path, case: dict[str, Any]) -> Pipeline:
    from runtime import Dataset, Pipeline, StaticMixtureWorkSource

    names = case.get("names", list(WEIGHTS))
    datasets = [Dataset.from_path(name, str(folder / name)) for name in names]
    weights = {
        dataset.name: dataset.total if case.get("once") else WEIGHTS[dataset.name] for dataset in datasets
    }
    source = StaticMixtureWorkSource(datasets, weights, stop_after_passes=1 if case.get("once") else 10_000)
    pipeline = Pipeline(source)
    if case.get("shuffle"):
        pipeline.shuffle(case["shuffle"])
    if case.get("mixture"):
        pipeline.ensure_mixture()
    pipeline.pack_flat(LENGTH, algorithm=case.get("algorithm", "wrap"), num_bins=case.get("bins"))
    return pipeline.batch(ROWS, drop_last=not case.get("once")).options(
        canonical_replicas=case.get("lanes", 1), runner=case.get("runner", "inline")
    )


# --- one case, in a process of its own


class Floor:
    """Random windows of rows, without anything that a row should know."""

    def __init__(self, folder: Path) -> None:
        with (folder / "flat.bin").open("rb") as stream:
            self._ids = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint16)
        self._mapped = np.memmap(folder / "flat.bin", np.uint16, "r")
        self._rng = np.random.default_rng(0)

    def _starts(self) -> list[int]:
        starts: list[int] = self._rng.integers(0, len(self._ids) - LENGTH, ROWS).tolist()
        return starts

    def fast(self) -> NDArray[np.int64]:
        return np.stack([self._ids[start : start + LENGTH] for start in self._starts()]).astype(np.int64)

    def usual(self) -> NDArray[np.int64]:
        windows = [self._mapped[start : start + LENGTH].astype(np.int64) for start in self._starts()]
        return np.stack(windows)


def tokens_a_second(step: Callable[[], object], batches: int) -> float:
    """Tokens a CPU-second of steps that give a batch each."""
    began = time.process_time()
    for _ in range(batches):
        step()
    return batches * BATCH / (time.process_time() - began)


def measure_speed(folder: Path, case: dict[str, Any], rounds: int) -> dict[str, float]:
    import runtime  # noqa: F401 - importing it is no part of the first batch

    began = time.perf_counter()
    pipeline = make_pipeline(folder, case)
    opened = time.perf_counter()
    batches = iter(pipeline)
    next(batches).to_training()
    first = time.perf_counter()
    floor, size = Floor(folder), 1000

    def step() -> None:
        next(batches).to_training()

    tokens_a_second(step, size)
    found: dict[str, list[float]] = {"rate": [], "documents": [], "fast": [], "usual": []}
    for _ in range(rounds):
        found["fast"].append(tokens_a_second(floor.fast, size // 2))
        found["usual"].append(tokens_a_second(floor.usual, size // 4))
        before = pipeline.ledger().documents.delivered
        found["rate"].append(tokens_a_second(step, size))
        delivered = pipeline.ledger().documents.delivered - before
        found["documents"].append(delivered * found["rate"][-1] / (size * BATCH))
    result = {name: statistics.median(values) for name, values in found.items()}
    for name in ("fast", "usual"):
        ratios = [rate / other for rate, other in zip(found["rate"], found[name], strict=True)]
        result[f"of_{name}"] = statistics.median(ratios)
    memory = private_bytes()
    pipeline.close()
    return {**result, "opening": opened - began, "first": first - opened, "memory": memory}


def measure_paced(folder: Path, case: dict[str, Any], rounds: int) -> dict[str, float]:
    """CPU of the loader a batch, sleep not being any; and what the loop waited for it."""
    pipeline, pause = make_pipeline(folder, case), case["pause"] / 1000
    batches = iter(pipeline)
    for _ in range(50):
        next(batches).to_training()
    count = rounds * (1500 if not pause else 150 if pause < 0.01 else 40)
    waits, cpu = [], time.process_time()
    for _ in range(count):
        if pause:
            time.sleep(pause)
        asked = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
        batch.to_training()
    spent = time.process_time() - cpu
    pipeline.close()
    return {"cpu": spent / count, "wait": statistics.mean(waits), "longest": max(waits)}


def measure_fill(folder: Path, case: dict[str, Any], rounds: int) -> dict[str, float]:
    """One pass over everything, rows of the end included."""
    del rounds
    pipeline = make_pipeline(folder, {**case, "once": True})
    cpu = time.process_time()
    rows = sum(map(len, pipeline))
    spent, ledger = time.process_time() - cpu, pipeline.ledger()
    pipeline.close()
    return {
        "fill": ledger.tokens.delivered / (rows * LENGTH),
        "lost": sum(ledger.tokens.lost.values()),
        "documents": ledger.documents.delivered / spent,
        "tokens": ledger.tokens.delivered,
    }


def private_bytes() -> float:
    from runtime.observability.stream import memory

    return memory()["private"]


MEASURES = {"speed": (measure_speed, SPEED), "paced": (measure_paced, PACED), "fill": (measure_fill, FILL)}


# --- all of them


def measured(kind: str, name: str, options: argparse.Namespace) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        str(options.folder),
        "--rounds",
        str(options.rounds),
        "--one",
        kind,
        name,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show(options: argparse.Namespace) -> None:
    heads = ("pipeline", "M tokens per CPU-s", "of the floor: fast", "usual", "M documents per CPU-s")
    print("|", " | ".join([*heads, "opening s", "first batch s", "MB"]), "|\n" + "|---" * 8 + "|", flush=True)
    for name in chosen(SPEED, options):
        found = measured("speed", name, options)
        print(
            f"| {name} | {found['rate'] / 1e6:.0f} | {found['of_fast']:.2f} | {found['of_usual']:.2f} "
            f"| {found['documents'] / 1e6:.2f} | {found['opening']:.3f} | {found['first']:.3f} "
            f"| {found['memory'] / 1e6:.0f} |",
            flush=True,
        )
    print(
        "\n| wrap, beside a loop | CPU µs a batch | mean wait µs | longest ms |\n|---|---|---|---|",
        flush=True,
    )
    for name in chosen(PACED, options):
        found = measured("paced", name, options)
        print(
            f"| {name} | {found['cpu'] * 1e6:.0f} | {found['wait'] * 1e6:.0f} "
            f"| {found['longest'] * 1e3:.1f} |",
            flush=True,
        )
    print("\n| packing, one pass | fill | tokens lost | M documents per CPU-s, packed and counted |")
    print("|---|---|---|---|", flush=True)
    for name in chosen(FILL, options):
        found = measured("fill", name, options)
        print(
            f"| {name} | {found['fill']:.3%} | {found['lost']:,} of {found['tokens']:,} "
            f"| {found['documents'] / 1e6:.2f} |",
            flush=True,
        )


def chosen(cases: dict[str, Any], options: argparse.Namespace) -> list[str]:
    words = options.only.split(",") if options.only else None
    kind = next(kind for kind, (_, known) in MEASURES.items() if known is cases)
    return [name for name in cases if words is None or any(word in (kind, name) for word in words)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", help="names of cases, or speed, paced, fill; separated by commas")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure, cases = MEASURES[options.one[0]]
        print(json.dumps(measure(options.folder, cases[options.one[1]], options.rounds)))
        return
    prepare(options.folder)
    show(options)


if __name__ == "__main__":
    main()
