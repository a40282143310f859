"""The command line, run in this process and as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
import yaml

from jobs.cli import main
from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prep.config import JobConfig
    from prep.job import Progress
    from tests.conftest import MakeConfig, WriteJsonl

PROCESS_SECONDS = 60


class Result(NamedTuple):
    """What a command left: exit status, standard output, standard error."""

    code: int
    out: str
    err: str


class MakeJob(Protocol):
    """The type of the fixture `job_file`."""

    def __call__(self, paths: Any, **sections: Any) -> Path: ...


@pytest.fixture
def tokenloom(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Result]]:
    """Runs a command in this process."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # set by the command, taken back here
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return Result(code, *capsys.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def tokenloom_process() -> Callable[..., Result]:
    """Runs a command as a process."""

    def run(*arguments: object, **options: Any) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "jobs.cli", *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PROCESS_SECONDS,
            **options,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def job_file(make_config: MakeConfig, tmp_path: Path) -> MakeJob:
    """Writes a job's YAML file; arguments as for `make_config`."""

    def write(paths: Any, **sections: Any) -> Path:
        path = tmp_path / "job.yaml"
        tree = make_config(paths, **sections).model_dump(mode="json", exclude_unset=True)
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return path

    return write


@pytest.fixture
def source(tmp_path: Path, write_jsonl: WriteJsonl) -> Path:
    """A hundred documents; the last fields of each make ids and kept fields."""
    records = [
        {"text": f"the quick brown fox {'jumps ' * (row % 9)}{row}", "id": f"d{row}", "n": row}
        for row in range(100)
    ]
    return write_jsonl(tmp_path / "in" / "a.jsonl", records)


class StoppedError(Exception):
    """Ends a job in the middle."""


def interrupt(config: JobConfig, shards: int) -> None:
    """Run a job until so many shards are committed, and leave it unfinished."""

    def stop(progress: Progress) -> None:
        if progress.shards >= shards:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_job(config, on_progress=stop)


@pytest.fixture
def unfinished(make_config: MakeConfig, job_file: MakeJob) -> Callable[..., Path]:
    """Leaves a job unfinished with some committed shards; returns its YAML file."""

    def leave(paths: Any, *, shards: int = 2, **sections: Any) -> Path:
        sections = {
            **sections,
            "processing": {"workers": 0, "batch_bytes": 1000, **sections.get("processing", {})},
            "output": {"shard_size": 1024, **sections.get("output", {})},
        }
        interrupt(make_config(paths, **sections), shards)
        return job_file(paths, **sections)

    return leave
