"""The preparation benchmark: jobs against the bare floor, in turn, in one run.

Each figure is for the whole process tree, start-up included. What counts is the ratio to the floor of the
same run: machines differ and are shared.

    TOKENLOOM_TEST_DATA=... python tests/bench/pretokenize.py [--bytes 300MB] [--runs 5]
                         [--formats jsonl,parquet,zst] [--tokenizer gpt2]
                         [--backend fastokens] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpus import make_corpus, test_data

from prep.config import parse_size

KINDS = ("prose", "multi", "code", "short")
GLOBS = {"jsonl": "*.jsonl", "parquet": "*.parquet", "zst": "*.jsonl.zst", "gz": "*.jsonl.gz"}


def measure(command: list[str]) -> tuple[float, float]:
    """Wall seconds and CPU seconds of a command with all its children."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: exit {process.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def write_config(work: Path, corpus: Path, fmt: str, tokenizer: Path, workers: int) -> Path:
    config = work / f"{fmt}.yaml"
    config.write_text(
        f"name: bench\nsource: {{paths: '{corpus / GLOBS[fmt]}'}}\ntokenizer: {{path: {tokenizer}}}\n"
        f"processing: {{workers: {workers}}}\noutput: {{path: {work / ('out-' + fmt)}}}\n"
    )
    return config


def compare(fmt: str, options: argparse.Namespace, work: Path) -> None:
    total = parse_size(options.bytes)
    corpus = make_corpus(work / f"corpus-{fmt}-{total}", total, fmt, 4, KINDS)
    tokenizer = test_data() / "tokenizers" / f"{options.tokenizer}.json"
    config = write_config(work, corpus, fmt, tokenizer, options.workers)
    ours = ["tokenloom", "pretokenize", "--quiet", "--json", "--restart", str(config)]
    ours += ["--set", f"tokenizer.backend={options.backend}"]
    floor = [sys.executable, str(Path(__file__).with_name("floor.py")), str(corpus), str(tokenizer)]
    floor += [str(work / "floor"), str(options.workers), options.backend]
    measure(ours), measure(floor)
    pairs = [(measure(ours), measure(floor)) for _ in range(options.runs)]
    megabytes = total / 1e6

    def median(which: int, kind: int) -> float:
        return statistics.median(pair[which][kind] for pair in pairs)

    wall = statistics.median(bare[0] / job[0] for job, bare in pairs)
    cpu = statistics.median(bare[1] / job[1] for job, bare in pairs)
    print(
        f"{fmt:<8} job {megabytes / median(0, 0):6.1f} MB/s {megabytes / median(0, 1):5.1f} MB per CPU-s | "
        f"floor {megabytes / median(1, 0):6.1f} MB/s {megabytes / median(1, 1):5.1f} MB per CPU-s | "
        f"ratio {wall:.2f} of the throughput, {cpu:.2f} of the text per CPU-second"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", default="300MB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--formats", default="jsonl,parquet,zst")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--backend", default="fastokens", choices=("fastokens", "tokenizers"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, help="keeps the corpora for another run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        for fmt in options.formats.split(","):
            compare(fmt, options, work)


if __name__ == "__main__":
    main()
