"""How many processors and how much memory this process may really use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prep.config import ProcessingConfig

CGROUP = Path("/sys/fs/cgroup")
WORKER_BYTES = 700_000_000
"""What a tokenizer process with a warm fast encoder needs at most, by measurement."""


def available_processors() -> int:
    """Processors by affinity and by the quota of every cgroup above this process."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroups("cpu"):
        quota = _quota(folder)
        if quota is not None:
            count = min(count, max(1, int(quota)))
    return max(1, count)


def available_memory() -> int | None:
    """The memory limit in bytes: the smallest of the machine's and every cgroup's above; None: unknown."""
    limits = [_machine_memory()]
    limits += [
        _number(folder / name)
        for folder in _cgroups("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    known = [limit for limit in limits if limit]
    return min(known) if known else None


def worker_count(processing: ProcessingConfig) -> int:
    """Tokenizer processes of a job."""
    return default_workers() if processing.workers == "auto" else processing.workers


def default_workers() -> int:
    """Tokenizer processes by default: as many as processors, and as memory allows."""
    memory = available_memory()
    by_memory = max(1, memory // WORKER_BYTES) if memory else available_processors()
    return min(available_processors(), by_memory)


def default_readers(workers: int) -> int:
    """Reader processes by default; one decompresses for several tokenizers."""
    return min(4, max(1, workers // 4))


def _machine_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _cgroups(controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and of all above it, version 2 and version 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        base = CGROUP if number == "0" else CGROUP / controller
        folder = base / path.lstrip("/")
        while True:
            yield folder
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent


def _quota(folder: Path) -> float | None:
    try:
        limit, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    limit_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return limit_us / period_us if limit_us and period_us else None


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return value if value > 0 else None
