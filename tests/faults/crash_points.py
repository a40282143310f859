"""A script: runs a job again and again, killed at its first step on the file system, its second and so on.

Each run is a fork of this process, so that libraries are loaded once. A step is what changes the output
folder: a file opened for writing, renamed or removed, a folder made or removed. The process kills itself
with SIGKILL right before the step; then the job runs to its end. One JSON object a killed run is printed.

Usage: crash_points.py CONFIG FOLDER [restart]

With "restart" each killed run is one with `restart` over the finished job, and the job is run once more with
and once without it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

# Loaded before the first fork; a fork must not start with threads.
import prep.finish
import prep.job
import prep.run
from prep.config import load_config

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def kill_at(step: int, folder: Path) -> None:
    """Have this process die right before its step of this number that touches the folder."""
    taken = 0
    lock = threading.Lock()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal taken
        if event != "open" and event not in STEPS:
            return
        if event == "open" and not _writes(arguments):
            return
        if not isinstance(arguments[0], str | bytes) or not os.fsdecode(arguments[0]).startswith(str(folder)):
            return
        with lock:
            taken += 1
            if taken > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def run_forked(config: str, folder: Path, step: int | None, *, restart: bool = False) -> int:
    """Run the job in a fork; returns its wait status."""
    pid = os.fork()
    if pid == 0:
        if step is not None:
            kill_at(step, folder)
        status = 1
        try:
            prep.job.run_job(load_config(config, [f"output.path={folder}"]), restart=restart)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def names(folder: Path) -> list[str]:
    """All files under a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def committed(folder: Path) -> list[tuple[str, int, int]]:
    """Name, inode and modification time of the shards that have a journal file."""
    shards = [
        shard
        for entry in sorted((folder / "_job/journal").glob("*.json"))
        for shard in (folder / "shards").glob(f"*-{entry.stem}.arrow")
    ]
    return [(shard.name, shard.stat().st_ino, shard.stat().st_mtime_ns) for shard in shards]


def main(config: str, base: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for step in range(10_000):
        folder = base / f"step-{step:04}"
        status = run_forked(config, folder, step)
        killed = os.WIFSIGNALED(status)
        left = names(folder) if folder.exists() else []
        kept = committed(folder)
        again = run_forked(config, folder, None)
        report = {
            "step": step,
            "killed": killed,
            "first": status,
            "again": again,
            "left": left,
            "finished": (folder / "catalog.json").name in left,
            "kept": kept == committed(folder)[: len(kept)],
            "after": names(folder),
            "folder": str(folder),
        }
        print(json.dumps(report), flush=True)
        if not killed:
            return


def main_restart(config: str, base: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    finished = base / "finished"
    assert run_forked(config, finished, None) == 0
    for step in range(10_000):
        folder = base / f"step-{step:04}"
        shutil.copytree(finished, folder)
        killed = os.WIFSIGNALED(run_forked(config, folder, step, restart=True))
        cleared = not (folder / "_job/job.json").exists()
        plain = run_forked(config, folder, None)
        again = run_forked(config, folder, None, restart=True)
        report = {"step": step, "killed": killed, "plain": plain, "again": again, "folder": str(folder)}
        print(json.dumps(report), flush=True)
        if cleared or not killed:
            return


if __name__ == "__main__":
    (main_restart if "restart" in sys.argv[3:] else main)(sys.argv[1], Path(sys.argv[2]))
