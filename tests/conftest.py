"""Fixtures that every test may use, and the check that no test leaves anything behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import fsspec.asyn
import psutil
import pytest
from hypothesis import HealthCheck, settings

from prep.config import JobConfig, validate
from prep.job import run_job
from prep.tokenizers.train import train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# A busy machine makes nothing wrong. `HYPOTHESIS_PROFILE=explore` looks at other examples in every run.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("explore", settings.get_profile("suite"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

TEST_DATA = "TOKENLOOM_TEST_DATA"
EOS = "<|endoftext|>"
LEAVE_SECONDS = 5.0
"""How long children that were told to stop may take to be gone."""
RUNTIMES = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")
"""What the runtimes inside libraries (of polars, say) open once a process and keep."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, never written


class MakeConfig(Protocol):
    """The type of the fixture `make_config`."""

    def __call__(self, paths: str | Path | Iterable[str | Path], **sections: Any) -> JobConfig: ...


class WriteJsonl(Protocol):
    """The type of the fixture `write_jsonl`."""

    def __call__(self, path: Path, records: Iterable[Mapping[str, Any] | str]) -> Path: ...


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `tokenizer.json` of some hundred ids made of a little text; its one control token is EOS, id 0."""
    words = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "naïve", "東京", "12345")
    texts = [" ".join(words[(start * step) % len(words)] for step in range(12)) for start in range(200)]
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_bpe(texts, 512, EOS))
    return path


@pytest.fixture
def write_jsonl() -> WriteJsonl:
    """Writes records as lines of a JSONL file (a string is a line as it stands); returns the path."""

    def write(path: Path, records: Iterable[Mapping[str, Any] | str]) -> Path:
        lines = [
            record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
            for record in records
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def make_config(tmp_path: Path, tokenizer_json: Path) -> MakeConfig:
    """A job over paths, every stage in this process, into `tmp_path / "out"`.

    Sections given by name (`processing={"workers": 2}`) are merged over that; `name` is a text.
    """

    def make(paths: str | Path | Iterable[str | Path], **sections: Any) -> JobConfig:
        single = isinstance(paths, str | Path)
        tree: dict[str, Any] = {
            "name": sections.pop("name", "test"),
            "source": {"paths": [str(paths)] if single else [str(path) for path in paths]},
            "tokenizer": {} if "train" in sections.get("tokenizer", {}) else {"path": str(tokenizer_json)},
            "processing": {"workers": 0},
            "output": {"path": str(tmp_path / "out")},
        }
        for section, fields in sections.items():
            tree[section] = {**tree[section], **fields}
        return validate(tree)

    return make


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory, tokenizer_json: Path) -> Path:
    """A finished job over two files: 120 documents in several shards, with ids, a kept field, rejects."""
    folder = tmp_path_factory.mktemp("finished")
    for name, rows in (("a.jsonl", 80), ("b.jsonl", 45)):
        records = [
            {"text": f"{name} the quick {'brown ' * (row % 7)}fox {row}", "id": f"{name}-{row}", "n": row}
            for row in range(rows)
        ]
        lines = [json.dumps(record) if number % 25 else "no json" for number, record in enumerate(records, 1)]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    config = {
        "name": "finished",
        "source": {"paths": str(folder / "*.jsonl"), "id_field": "id", "keep_fields": {"n": "int64"}},
        "tokenizer": {"path": str(tokenizer_json)},
        "processing": {"workers": 0, "on_bad_record": "skip"},
        "output": {"path": str(folder / "out"), "shard_size": 3000},
    }
    run_job(validate(config))
    return folder / "out"


@pytest.fixture
def catalog_folder(_finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished job's folder, to look at or to damage."""
    return Path(shutil.copytree(_finished, tmp_path / "catalog"))


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, bytes]]:
    """Reads every file under a folder: relative path to content."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    return read


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real corpora and tokenizers that TOKENLOOM_TEST_DATA names."""
    folder = os.environ.get(TEST_DATA)
    if not folder:
        pytest.skip(f"{TEST_DATA} names no folder of corpora and tokenizers")
    return Path(folder)


class Held(NamedTuple):
    """What this process holds at a moment."""

    children: frozenset[int]
    threads: frozenset[int]
    shared_memory: frozenset[str]
    descriptors: frozenset[tuple[str, str]]


@pytest.fixture(scope="session", autouse=True)
def _helpers_of_the_process() -> None:
    """Start what libraries start once a process and keep, so that no test seems to have left it."""
    resource_tracker.ensure_running()
    fsspec.asyn.get_loop()


@pytest.fixture(autouse=True)
def _nothing_left(_helpers_of_the_process: None) -> Iterator[None]:
    """Fail a test that leaves child processes, threads, shared memory or open files behind."""
    before = _held()
    yield
    after = _held()
    if left := _left(before, after):
        gc.collect()
        psutil.wait_procs(list(_processes(after.children - before.children)), timeout=LEAVE_SECONDS)
        left = _left(before, _held())
    assert not left, f"left behind: {left}"


def _held() -> Held:
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    return Held(
        frozenset(_children()),
        frozenset(thread.ident for thread in threads if thread.ident is not None),
        frozenset(path.name for path in SHARED_MEMORY.iterdir()) if SHARED_MEMORY.is_dir() else frozenset(),
        frozenset(_descriptors()),
    )


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _descriptors() -> Iterator[tuple[str, str]]:
    folder = Path("/proc/self/fd")
    for link in list(folder.iterdir()) if folder.is_dir() else ():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if target not in RUNTIMES:
            yield link.name, target


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        try:
            yield psutil.Process(pid)
        except psutil.NoSuchProcess:
            continue


def _left(before: Held, after: Held) -> list[str]:
    """What is held after a test and was not before it, in words."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    left = [f"child process {_command(pid)}" for pid in after.children - before.children]
    left += [f"thread {threads.get(ident, ident)}" for ident in after.threads - before.threads]
    left += [
        f"shared memory {name}"
        for name in after.shared_memory - before.shared_memory
        if not _used_elsewhere(name)
    ]
    return left + [f"open file {target}" for _, target in after.descriptors - before.descriptors]


def _command(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"{pid} ({process.status()}): {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{pid} (gone)"


def _used_elsewhere(name: str) -> bool:
    """Whether a process that is none of ours maps it: other programs use this machine too."""
    ours = {os.getpid(), *_children()}
    wanted = str(SHARED_MEMORY / name)
    for process in psutil.process_iter():
        try:
            if process.pid not in ours and wanted in Path(f"/proc/{process.pid}/maps").read_text("ascii"):
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False
