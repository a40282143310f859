"""Continuing with other sources or other fields: refused with the difference, or free to change."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import RefusedError
from prep.config import load_config
from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.conftest import Corpora, MakeJob
    from tests.faults.harness import Job


@pytest.fixture(scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def sources(corpora: Corpora, tmp_path: Path) -> Path:
    return shutil.copytree(corpora.make("small"), tmp_path / "sources")


@pytest.fixture
def job(make_job: MakeJob, corpora: Corpora, sources: Path, _kept: Path) -> Job:
    """A job over `sources`, ended by `kill -9` after at least three commits."""
    job = make_job("small", workers=0, batch_bytes=4_000)
    text = job.config.read_text(encoding="utf-8").replace(str(corpora.make("small")), str(sources))
    job.config.write_text(text, encoding="utf-8")
    if not (_kept / "output").exists():
        command = job.start()
        command.until(lambda: len(job.journal()) >= 3, "three shards are committed")
        command.kill()
        shutil.copytree(job.output, _kept / "output")
    else:
        shutil.copytree(_kept / "output", job.output)
    assert not (job.output / "catalog.json").exists()
    return job


def refused(job: Job, *options: str, **fields: Any) -> str:
    before = job.committed()
    command = job.run(*options, status=4, **fields)
    assert job.committed() == before
    return command.errors.partition("tokenloom: error: ")[2]


def grow(sources: Path) -> str:
    with (sources / "1.jsonl").open("ab") as stream:
        stream.write(b'{"text": "more"}\n')
    return "changed: 1.jsonl"


def remove(sources: Path) -> str:
    (sources / "2.jsonl").unlink()
    return "removed: 2.jsonl"


def add(sources: Path) -> str:
    (sources / "3.jsonl").write_bytes(b'{"text": "more"}\n')
    return "added: 3.jsonl"


def rename(sources: Path) -> str:
    (sources / "0.jsonl").rename(sources / "00.jsonl")
    return "removed: 0.jsonl"


CHANGES = [grow, remove, add, rename]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_sources_are_refused_with_the_list(
    job: Job, sources: Path, change: Callable[[Path], str]
) -> None:
    said = change(sources)
    message = refused(job)
    assert said in message
    assert "--restart" in message


@pytest.mark.parametrize("change", CHANGES)
def test_changed_sources_of_a_finished_job_are_refused_with_the_list(
    job: Job, sources: Path, change: Callable[[Path], str]
) -> None:
    job.run()
    assert change(sources) in refused(job)


def test_sources_in_another_order_are_refused(job: Job, sources: Path) -> None:
    paths = "[" + ", ".join(str(sources / f"{number}.jsonl") for number in (1, 0, 2)) + "]"
    assert "order" in refused(job, source__paths=paths)


def test_q36_sources_listed_one_by_one_in_the_same_order_are_the_same(job: Job, sources: Path) -> None:
    paths = "[" + ", ".join(str(sources / f"{number}.jsonl") for number in (0, 1, 2)) + "]"
    before = job.committed()
    job.run(source__paths=paths)
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_the_same_sources_in_another_place_are_the_same(job: Job, sources: Path, tmp_path: Path) -> None:
    """Roots and modification times are execution fields."""
    moved = shutil.move(sources, tmp_path / "moved")
    before = job.committed()
    job.run(source__paths=f"{moved}/*")
    assert job.committed().items() >= before.items()
    job.check_finished()


IDENTITY = [
    ("name", "other", "'job'", "'other'"),
    ("source.text_field", "body", "'text'", "'body'"),
    ("source.id_field", "null", "'id'", "None"),
    ("source.keep_fields", "{lang: string, n: int64}", "'lang', 'string'", "'n', 'int64'"),
    ("source.format", "jsonl", "'auto'", "'jsonl'"),
    ("tokenizer.add_eos", "false", "0", "None"),
    ("tokenizer.add_bos", "true", "None", "0"),
    ("tokenizer.control_tokens_in_text", "token", "'text'", "'token'"),
    ("processing.shuffle.documents", "block", "'none'", "'block'"),
    ("processing.shuffle.seed", "1", "0", "1"),
    ("processing.on_bad_record", "error", "'skip'", "'error'"),
    ("processing.on_bad_text", "replace", "'error'", "'replace'"),
    ("processing.on_empty", "keep", "'skip'", "'keep'"),
    ("processing.min_document_bytes", "7", "0", "7"),
    ("processing.max_document_bytes", "7777", "None", "7777"),
    ("output.shard_size", "30KB", "20000", "30000"),
    ("output.compression", "zstd", "'none'", "'zstd'"),
    ("output.dtype", "uint32", "'uint16'", "'uint32'"),
]
NAMES = {"tokenizer.add_eos": "tokenizer.eos_id", "tokenizer.add_bos": "tokenizer.bos_id"}


@pytest.mark.parametrize(("field", "value", "began", "now"), IDENTITY, ids=[field[0] for field in IDENTITY])
def test_a_changed_identity_field_is_refused_with_both_values(
    job: Job, field: str, value: str, began: str, now: str
) -> None:
    extra = ["tokenizer.bos_token=<|endoftext|>"] if field == "tokenizer.add_bos" else []
    config = load_config(job.config, [f"output.path={job.output}", f"{field}={value}", *extra])
    before = job.committed()
    with pytest.raises(RefusedError) as caught:
        run_job(config)
    assert caught.value.exit_code == 4
    assert job.committed() == before
    name = NAMES.get(field, field)
    line = next(line for line in str(caught.value).splitlines() if line.strip().startswith(name))
    assert began in line
    assert now in line


EXECUTION = [
    {"processing__workers": 2},
    {"processing__workers": 1, "processing__readers": 3},
    {"processing__batch_bytes": 700},
    {"tokenizer__backend": "fastokens"},
    {"processing__workers": 2, "processing__batch_bytes": "1MB", "tokenizer__backend": "auto"},
]


@pytest.mark.parametrize("fields", EXECUTION, ids=",".join)
def test_q27_execution_fields_may_change(job: Job, fields: dict[str, Any]) -> None:
    before = job.committed()
    job.run(**fields)
    assert job.committed().items() >= before.items()
    job.check_finished()
