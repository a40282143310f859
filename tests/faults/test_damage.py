"""Continuing a job whose output, journal or record is not what was written."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tests.faults.conftest import Corpora, MakeJob
    from tests.faults.harness import Job

COMMITTED = 4


@pytest.fixture(scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def job(make_job: MakeJob, corpora: Corpora, _kept: Path) -> Job:
    """A job over a copy of its sources, ended by `kill -9` after at least four commits."""
    job = make_job("small", workers=0, batch_bytes=4_000)
    sources = job.config.parent / "sources"
    shutil.copytree(corpora.make("small"), sources)
    text = job.config.read_text(encoding="utf-8").replace(str(corpora.make("small")), str(sources))
    job.config.write_text(text, encoding="utf-8")
    if not (_kept / "output").exists():
        command = job.start()
        command.until(lambda: len(job.journal()) >= COMMITTED, "four shards are committed")
        command.kill()
        shutil.copytree(job.output, _kept / "output")
    else:
        shutil.copytree(_kept / "output", job.output)
    assert not (job.output / "catalog.json").exists()
    return job


def shard(job: Job, number: int) -> Path:
    """A committed shard; -1 is the last."""
    return job.output / "shards" / sorted(job.committed())[number]


def flip(path: Path) -> None:
    """Change one byte in the middle of a file, not its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def refused(job: Job, *options: str, **fields: Any) -> str:
    """Run the job, which must be refused; its message. What is committed is as it was."""
    before = job.committed()
    command = job.run(*options, status=4, **fields)
    assert job.committed() == before
    assert "Traceback" not in command.errors
    return command.errors.partition("tokenloom: error: ")[2]


def test_the_last_shard_truncated_is_refused(job: Job) -> None:
    path = shard(job, -1)
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in refused(job)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_missing_shard_is_refused(job: Job, number: int) -> None:
    path = shard(job, number)
    path.unlink()
    message = job.run(status=4).errors
    assert str(path) in message
    assert "no file" in message


def test_the_last_shard_with_a_flipped_byte_is_refused(job: Job) -> None:
    flip(shard(job, -1))
    message = refused(job)
    assert str(shard(job, -1)) in message
    assert "checksum" in message


def test_an_earlier_shard_with_a_flipped_byte_is_found_with_verify(job: Job) -> None:
    flip(shard(job, 1))
    assert str(shard(job, 1)) in refused(job, "--verify")
    # Without, only the last one is read again on a restart; then `catalog verify` finds it.
    job.run()
    found = job.tool("catalog", "verify", str(job.output), status=4)
    assert shard(job, 1).name in found.printed + found.errors


def test_a_missing_journal_file_is_refused(job: Job) -> None:
    path = job.output / "_job/journal/00000-000001.json"
    path.unlink()
    command = job.run(status=4)
    assert str(path) in command.errors
    assert all((job.output / "shards" / name).exists() for name in job.committed())


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1', b"[]", b'{"version": 99}', b"\xff\xfe"])
def test_a_damaged_journal_file_is_refused(job: Job, content: bytes) -> None:
    path = job.output / "_job/journal/00000-000002.json"
    path.write_bytes(content)
    assert str(path) in refused(job)


@pytest.mark.parametrize("name", ["job.json", "sources.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", None], ids=repr)
def test_a_damaged_record_of_the_job_is_refused(job: Job, name: str, content: bytes | None) -> None:
    path = job.output / "_job" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    # An empty list of sources is a list: then it is the sources that differ.
    assert path.name in (message := refused(job)) or (content == b"" and "sources" in message)


def test_the_tokenizer_beside_the_shards_replaced_does_not_end_in_a_finished_catalog(job: Job) -> None:
    path = job.output / "tokenizer.json"
    path.write_bytes(b"{}")
    command = job.start()
    if command.wait() == 0:
        job.check_finished()


def test_files_that_were_not_committed_are_dropped(job: Job) -> None:
    """A shard without its journal file, rejects without either, and scratch are what a crash leaves."""
    count = len(job.journal())
    name = f"job-00000-{count:06}.arrow"
    (job.output / "shards" / name).write_bytes(b"half of a shard")
    (job.output / f"_job/rejects/00000-{count:06}.jsonl").write_bytes(b"{}\n")
    scratch = job.output / "_job/tmp"
    scratch.mkdir(exist_ok=True)
    (scratch / "shard-00000-000099.arrow").write_bytes(b"half of a shard")
    before = job.committed()
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_shards_without_a_record_of_their_job_are_not_overwritten(job: Job) -> None:
    (job.output / "_job/job.json").unlink()
    before = sorted(path.stat().st_ino for path in (job.output / "shards").iterdir())
    assert "job.json" in refused(job)
    assert sorted(path.stat().st_ino for path in (job.output / "shards").iterdir()) == before
    job.run("--restart")
    job.check_finished()


def test_a_finished_catalog_with_a_damaged_header_is_refused(job: Job) -> None:
    job.run()
    header = job.output / "catalog.json"
    header.write_bytes(header.read_bytes()[:100])
    assert str(header) in refused(job)


def test_a_finished_job_without_its_job_folder_is_still_finished(job: Job) -> None:
    """DESIGN 3.3: the job folder can be deleted once the catalog is there."""
    job.run()
    shutil.rmtree(job.output / "_job")
    assert "nothing to do" in job.run().printed
    job.tool("catalog", "verify", str(job.output))


def test_q34_other_ids_for_the_same_tokenizer_are_refused_with_the_first_string(job: Job) -> None:
    """Q34: as if the job had been begun with a version of the library that encodes differently."""
    path = job.output / "_job/job.json"
    record = json.loads(path.read_bytes())
    record["probe_ids"][5] = [1, 2, 3]
    path.write_text(json.dumps(record), encoding="utf-8")
    assert "[1, 2, 3]" in refused(job)


def test_q35_another_tokenizer_is_refused(job: Job, harness: ModuleType, tmp_path: Path) -> None:
    """Q35: A to B, nothing of A is used; A again, nothing is done twice."""
    tree = json.loads((job.output / "tokenizer.json").read_bytes())
    merges = tree["model"]["merges"]
    merges.append(["t", "h"] if ["t", "h"] not in merges else ["q", "q"])
    tree["model"]["vocab"].setdefault("".join(merges[-1]), len(tree["model"]["vocab"]))
    other = tmp_path / "other.json"
    other.write_text(json.dumps(tree), encoding="utf-8")
    message = refused(job, tokenizer__path=str(other))
    assert "tokenizer" in message
    before = job.committed()
    job.run()
    assert job.committed().items() >= before.items()
    assert harness.digests(job.output) == job.expected
