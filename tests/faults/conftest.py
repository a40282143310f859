"""Jobs that take long enough to be interrupted, with the bytes that they must end in."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import signal
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tests.faults.harness import Job

WORDS = 2000
SHARD_BYTES = {"small": 20_000, "tiny": 7_000}
LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßéčжш東"


HANG_SECONDS = 240
"""A test that takes so long hangs."""


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """End a test that hangs inside the library, so that the others still run."""

    def give_up(*_: object) -> None:
        pytest.fail(f"the test hangs: not finished after {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class MakeJob(Protocol):
    """The type of the fixture `make_job`."""

    def __call__(self, corpus: str, **fields: Any) -> Job: ...


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """The module beside this one; tests are no package that could import it."""
    name = "tests_faults_harness"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("harness.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Corpora:
    """Folders of source files, each made when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        rng = random.Random(2)  # noqa: S311 - repeatable words, no secret
        self._words = ["".join(rng.choices(LETTERS, k=rng.randint(1, 9))) for _ in range(WORDS)]

    def text(self, rng: random.Random, longest: int = 300) -> str:
        return " ".join(rng.choices(self._words, k=rng.randint(1, longest)))

    def lines(self, seed: int, size: int) -> bytes:
        """JSON lines with ids, some of them blank, some of them no JSON."""
        rng = random.Random(seed)  # noqa: S311
        lines: list[str] = []
        while size > 0:
            record = {"id": len(lines), "text": self.text(rng), "lang": rng.choice(("de", "ja", None))}
            lines.append(json.dumps(record, ensure_ascii=False))
            size -= len(lines[-1].encode())
            if rng.random() < 0.03:
                lines.append(rng.choice(("", "{broken", '{"text": ""}')))
        return "".join(f"{line}\n" for line in lines).encode()

    def table(self, seed: int, rows: int) -> pa.Table:
        rng = random.Random(seed)  # noqa: S311
        return pa.table(
            {
                "id": pa.array(range(rows), pa.int64()),
                "text": [self.text(rng) for _ in range(rows)],
                "lang": ["en"] * rows,
            }
        )

    @cache  # noqa: B019 - one object a session
    def make(self, name: str) -> Path:
        """The folder of a corpus."""
        folder = self._folder / name
        folder.mkdir()
        getattr(self, f"_{name}")(folder)
        return folder

    def _plain(self, folder: Path) -> None:
        (folder / "a.jsonl").write_bytes(self.lines(1, 3_500_000))

    def _streams(self, folder: Path) -> None:
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(self.lines(2, 2_500_000), 1))
        (folder / "b.jsonl.zst").write_bytes(zstandard.compress(self.lines(3, 1_500_000), 1))

    def _mixed(self, folder: Path) -> None:
        (folder / "a.jsonl").write_bytes(b"{broken\n" + self.lines(4, 2_500_000))
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(self.lines(5, 1_000_000), 1))
        (folder / "c.jsonl.zst").write_bytes(zstandard.compress(self.lines(6, 1_000_000), 1))
        pq.write_table(self.table(7, 1200), folder / "d.parquet", row_group_size=100)
        pq.write_table(self.table(8, 600), folder / "e.parquet")

    def _small(self, folder: Path) -> None:
        for number in range(3):
            (folder / f"{number}.jsonl").write_bytes(self.lines(10 + number, 60_000))

    def _tiny(self, folder: Path) -> None:
        (folder / "a.jsonl").write_bytes(b"{broken\n" + self.lines(20, 9_000) + b"{broken\n")
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(self.lines(21, 6_000)))


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    return Corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="session")
def _expected() -> dict[str, dict[str, str]]:
    """Results of uninterrupted runs, by configuration."""
    return {}


@pytest.fixture
def make_job(
    tmp_path_factory: pytest.TempPathFactory,
    harness: ModuleType,
    corpora: Corpora,
    tokenizer_json: Path,
    _expected: dict[str, dict[str, str]],
) -> Iterator[MakeJob]:
    """A job over a corpus with the bytes it must end in; `fields` are of the section `processing`.

    By default it has two tokenizer processes with the slow backend, small blocks and small shards.
    """
    jobs: list[Job] = []

    def make(corpus: str, **fields: Any) -> Job:
        tree = {
            "name": "job",
            "source": {
                "paths": [str(corpora.make(corpus) / "*")],
                "id_field": "id",
                "keep_fields": {"lang": "string"},
            },
            "tokenizer": {"path": str(tokenizer_json), "backend": "tokenizers"},
            "processing": {"workers": 2, "batch_bytes": 40_000, "on_bad_record": "skip", **fields},
            "output": {"shard_size": SHARD_BYTES.get(corpus, 120_000)},
        }
        key = json.dumps([corpus, fields.get("shuffle")])
        if key not in _expected:
            whole = harness.Job(tmp_path_factory.mktemp("whole"), tree)
            whole.run(processing__workers=0, tokenizer__backend="fastokens")
            assert len(whole.journal()) >= 3
            _expected[key] = whole.result()
        job = harness.Job(tmp_path_factory.mktemp("job"), tree, _expected[key])
        jobs.append(job)
        return job

    yield make
    for job in jobs:
        job.close()
