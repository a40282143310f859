"""Running the command for real, finding all its processes, and reading what it leaves on disk."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pyarrow as pa
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MARK = "TOKENLOOM_TEST_MARK"
COMMAND = Path(sys.executable).with_name("tokenloom")
POLL_SECONDS = 0.01
PATIENCE = 60.0
"""Seconds after which a condition that should come true is given up; only failures wait so long."""
GONE_SECONDS = 5.0
"""Within this time nothing may be left of a job that was ended."""

FINAL_NAMES = re.compile(
    r"catalog\.json|shards\.parquet|sources\.parquet|tokenizer\.json"
    r"|shards/[\w.-]+-\d{5}-\d{6}\.arrow"
    r"|_job/(?:lock|job\.json|run\.log|sources\.jsonl|tokenizer_config\.json)"
    r"|_job/journal/\d{5}-\d{6}\.json|_job/rejects/\d{5}-\d{6}\.jsonl"
)
SCRATCH = "_job/tmp/"
RESULT = ("shards/*.arrow", "*.parquet", "catalog.json", "tokenizer.json", "_job/rejects/*.jsonl")


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait for a condition; returns its first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s for this: {what}")
        time.sleep(POLL_SECONDS)
    return value


class Command:
    """A `tokenloom` command in a process group of its own; a context manager that ends what it started.

    Every process that comes of it carries a mark in its environment, so that orphans are found too.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], file_limit: int | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self.scratch = folder / f"scratch-{self._mark}"
        self.scratch.mkdir()
        self._output = folder / f"output-{self._mark}"
        self._error = folder / f"error-{self._mark}"
        words = [str(COMMAND), *arguments]
        if file_limit is not None:
            words = [sys.executable, "-c", LIMITED, str(file_limit), *words]
        environment = {**os.environ, MARK: self._mark, "TMPDIR": str(self.scratch)}
        with self._output.open("wb") as output, self._error.open("wb") as error:
            self.process = subprocess.Popen(
                words, stdout=output, stderr=error, env=environment, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members():
            _kill(member)
        self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def errors(self) -> str:
        """Standard error so far."""
        return self._error.read_text(encoding="utf-8")

    @property
    def printed(self) -> str:
        """Standard output so far."""
        return self._output.read_text(encoding="utf-8")

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s; standard error:\n{self.errors}")

    def finish(self, status: int = 0) -> Self:
        """Wait for the end with this status, and check that nothing is left of it."""
        found = self.wait()
        assert found == status, f"exit status {found}, expected {status}:\n{self.errors}"
        self.check_gone()
        return self

    def check_gone(self) -> None:
        """No process is left, nor a file in the folder for temporary files."""
        until(lambda: not self.members(), "every process of the command is gone", GONE_SECONDS)
        assert list(self.scratch.iterdir()) == []

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while the command runs."""

        def check() -> Any:
            value = condition()
            if not value and self.process.poll() is not None:
                pytest.fail(f"ended with {self.process.returncode} before this: {what}\n{self.errors}")
            return value

        return until(check, what)

    def members(self) -> list[psutil.Process]:
        """All live processes that came of this command, wherever they hang in the tree."""
        return [process for process in psutil.process_iter() if self._is_member(process)]

    def _is_member(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            return False

    def children(self) -> list[psutil.Process]:
        """Tokenizer and reader processes, the oldest first."""
        found = []
        for process in self.members():
            try:
                if "--multiprocessing-fork" in process.cmdline():
                    found.append((process.create_time(), process.pid, process))
            except psutil.Error:
                continue
        return [process for *_, process in sorted(found, key=lambda entry: entry[:2])]

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        self.process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Send a signal to the main process and all that came of it, as a terminal does."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """`kill -9` the main process, and check that nothing of it survives."""
        self.process.kill()
        self.process.wait()
        self.check_gone()

    def catches(self, number: int) -> bool:
        """Whether the main process has its own handler of a signal installed."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return bool(caught and int(caught[1], 16) >> (number - 1) & 1)


LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a command that cannot write a file beyond a size; Python ignores the signal, so writes fail."""


class Job:
    """A job's configuration and its output folder.

    Args:
        folder: for the configuration, the output and logs.
        tree: the configuration without its output path.
        expected: what `result` gives after an uninterrupted run, if it is known.
    """

    def __init__(self, folder: Path, tree: dict[str, Any], expected: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._commands: list[Command] = []
        self.expected = expected or {}
        self.output = folder / "output"
        self.config = folder / "job.yaml"
        self.config.write_text(yaml.safe_dump(tree), encoding="utf-8")

    def close(self) -> None:
        for command in self._commands:
            command.__exit__()

    def start(self, *options: str, file_limit: int | None = None, **fields: Any) -> Command:
        """Start the job; `fields` are overrides with "__" for the dot."""
        sets = [f"--set={name.replace('__', '.')}={value}" for name, value in fields.items()]
        where = (
            []
            if any(option.startswith("--set=output.path=") for option in options)
            else [f"--set=output.path={self.output}"]
        )
        arguments = ["pretokenize", str(self.config), *where, *sets, *options]
        command = Command(self._folder, arguments, file_limit)
        self._commands.append(command)
        return command

    def run(self, *options: str, status: int = 0, file_limit: int | None = None, **fields: Any) -> Command:
        """Run the job to its end."""
        return self.start(*options, file_limit=file_limit, **fields).finish(status)

    def tool(self, *arguments: str, status: int = 0) -> Command:
        """Run another subcommand to its end."""
        command = Command(self._folder, arguments)
        self._commands.append(command)
        return command.finish(status)

    def result(self) -> dict[str, str]:
        """Digest of every file that a finished job's identity decides."""
        return digests(self.output)

    def check_finished(self) -> None:
        """The job is finished as if nothing had ever happened, and scratch is gone."""
        assert self.result() == self.expected
        assert self.stray_files() == []
        assert not any((self.output / SCRATCH).rglob("*"))

    def committed(self) -> dict[str, tuple[int, int, int]]:
        """Inode, modification time and size of each shard that has a journal file."""
        found = {}
        for index in self.journal():
            for path in (self.output / "shards").glob(f"*-00000-{index:06}.arrow"):
                status = path.stat()
                found[path.name] = (status.st_ino, status.st_mtime_ns, status.st_size)
        return found

    def journal(self) -> list[int]:
        """Indices of the shards that are committed."""
        return sorted(int(path.stem[-6:]) for path in (self.output / "_job/journal").glob("*-??????.json"))

    def stray_files(self) -> list[str]:
        """Files that are neither complete parts of the job nor scratch."""
        return stray(_names(self.output))

    def clear(self) -> None:
        """Remove the output folder."""
        shutil.rmtree(self.output)

    def check_interrupted(self) -> None:
        """What a killed run may leave: whole shards, of which one may lack its journal file, and scratch."""
        assert self.stray_files() == []
        shards = sorted((self.output / "shards").glob("*.arrow"))
        for path in shards:
            count_rows(path)
        assert len(shards) - len(self.journal()) in (0, 1)


def stray(names: Iterable[str]) -> list[str]:
    """Which of an output folder's files are neither complete parts of the job nor scratch."""
    return [name for name in names if not name.startswith(SCRATCH) and not FINAL_NAMES.fullmatch(name)]


def digests(output: Path) -> dict[str, str]:
    """Digest of every file in an output folder that identity fields and inputs decide."""
    files = sorted(path for pattern in RESULT for path in output.glob(pattern))
    return {
        path.relative_to(output).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def read_tree(config: Path) -> dict[str, Any]:
    """A configuration as plain data, to make another of it."""
    tree: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
    return tree


def count_rows(path: Path) -> int:
    """Rows of a complete shard."""
    with pa.memory_map(str(path)) as source:
        return int(pa.ipc.open_file(source).read_all().num_rows)


def _names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return
