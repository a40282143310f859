"""Runs a job and records the resident memory of all its processes together, sampled while it runs.

Resident memory is the sum of every process's RSS: pages that processes share count in each.

    python tests/bench/memory.py CONFIG.yaml [--set a.b=c ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import psutil

SAMPLE_SECONDS = 0.05


def run_sampled(command: list[str]) -> dict[str, float]:
    """Run a command; returns its peak and mean resident memory in MB over the whole process tree."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    tree, samples, ended = psutil.Process(process.pid), [], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            samples.append(_resident(tree))

    thread = threading.Thread(target=sample)
    thread.start()
    status = process.wait()
    ended.set()
    thread.join()
    half = samples[len(samples) // 4 :] or [0]
    return {
        "status": status,
        "peak_mb": max(samples, default=0) / 1e6,
        "mean_mb": sum(half) / len(half) / 1e6,
        "end_mb": (sum(half[-20:]) / len(half[-20:])) / 1e6,
    }


def _resident(tree: psutil.Process) -> int:
    total = 0
    try:
        members = [tree, *tree.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    print(json.dumps(run_sampled(["tokenloom", "pretokenize", "--restart", "--quiet", *sys.argv[1:]])))
