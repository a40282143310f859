"""Processes killed at any moment: nothing committed is lost, nothing left, the bytes are the same (P3)."""

from __future__ import annotations

import json
import random
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.faults.conftest import Corpora, MakeJob
    from tests.faults.harness import Command, Job

KILLS = 25
KILLING_SECONDS = 50.0
ENCODING_BYTES = 300_000_000
"""A tokenizer process holds more than this only while it encodes the large document below."""
LARGE_CHARACTERS = 2_500_000
FILLERS = 900
BATCH_BYTES = 40_000


def committed_at_least(job: Job, number: int) -> Callable[[], bool]:
    return lambda: len(job.journal()) >= number


def kill_child(process: psutil.Process) -> None:
    """Kill a process of ours, which may have ended by itself."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def opened(children: list[psutil.Process], suffix: str) -> psutil.Process | None:
    """The child that has a source file open."""
    for child in children:
        try:
            if any(file.path.endswith(suffix) for file in child.open_files()):
                return child
        except psutil.Error:
            continue
    return None


def memory_of(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


@pytest.mark.parametrize("corpus", ["plain", "streams"])
def test_q23_q27_main_killed_in_succession(make_job: MakeJob, corpus: str) -> None:
    """Q23 second run, Q27: children gone in 5 s, leftovers under _job/tmp, at most one shard redone."""
    job = make_job(corpus)
    total = sum(name.startswith("shards/") for name in job.expected)
    before: dict[str, tuple[int, int, int]] = {}
    rng = random.Random(23)  # noqa: S311
    for share in (0.0, 0.25, 0.6):
        command = job.start()
        wanted = max(len(before) + 1, round(total * share))
        if share:
            command.until(committed_at_least(job, wanted), f"{wanted} shards are committed")
        else:
            command.until(command.children, "a child process runs")
        time.sleep(rng.random() * 0.1)
        command.kill()
        job.check_interrupted()
        after = job.committed()
        assert after.items() >= before.items()
        assert "catalog.json" not in job.result()
        before = after
    # The numbers of workers and readers may change on resume (Q27).
    command = job.run("--json", processing__workers=3, processing__readers=2)
    assert json.loads(command.printed)["resumed_shards"] == len(before)
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_q23_no_process_of_a_job_uses_shared_memory_with_a_name(make_job: MakeJob) -> None:
    """Q30: what has no name cannot be left behind by `kill -9`, nor collide with another run."""
    job = make_job("streams")
    command = job.start()
    command.until(committed_at_least(job, 3), "three shards are committed")
    members = command.members()
    assert len(members) >= 4  # main, two tokenizers, a reader
    for member in members:
        assert not [entry.path for entry in member.memory_maps() if entry.path.startswith("/dev/shm")]  # noqa: S108
        assert not [file.path for file in member.open_files() if file.path.startswith("/dev/shm")]  # noqa: S108
    command.kill()


@pytest.mark.parametrize("shards", [0, 8])
def test_q23_a_killed_tokenizer_is_replaced_and_the_job_goes_on(make_job: MakeJob, shards: int) -> None:
    job = make_job("plain")
    command = job.start()
    command.until(committed_at_least(job, shards), f"{shards} shards are committed")
    victim = command.until(command.children, "a child process runs")[0]
    victim.kill()
    command.finish()
    assert "signal 9" in command.errors
    job.check_finished()


def fresh_reader(command: Command, seen: set[int]) -> psutil.Process | None:
    """A reader process, not met before, that has the first file open."""
    reader = opened([child for child in command.children() if child.pid not in seen], ".gz")
    if reader is not None:
        seen.add(reader.pid)
    return reader


def test_q23_killed_readers_are_replaced_as_long_as_the_job_gets_on(make_job: MakeJob) -> None:
    """A batch is tried once more; two deaths far apart in one large file are no batch that kills."""
    job = make_job("streams")
    command = job.start()
    seen: set[int] = set()
    for shards in (2, 8):
        command.until(committed_at_least(job, shards), f"{shards} shards are committed")
        reader = command.until(lambda: fresh_reader(command, seen), "a reader has the file open")
        kill_child(reader)
    command.finish()
    assert command.errors.count("reader process was killed by signal 9") == 2
    job.check_finished()


def test_a_reader_killed_again_and_again_ends_the_job_with_the_name_of_its_file(make_job: MakeJob) -> None:
    job = make_job("streams")
    command = job.start()
    command.until(committed_at_least(job, 2), "two shards are committed")
    seen: set[int] = set()
    while command.process.poll() is None:
        if reader := fresh_reader(command, seen):
            kill_child(reader)
    command.finish(5)
    assert "a.jsonl.gz" in command.errors
    assert "signal 9" in command.errors
    before = job.committed()
    assert before
    job.check_interrupted()
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_tokenizers_killed_while_they_load_are_replaced_as_long_as_the_job_gets_on(
    make_job: MakeJob,
) -> None:
    job = make_job("plain")
    command = job.start()
    for shards in (2, 12):
        command.until(committed_at_least(job, shards), f"{shards} shards are committed")
        old = {child.pid for child in command.children()}
        kill_child(command.children()[0])
        fresh = command.until(
            lambda old=old: [child for child in command.children() if child.pid not in old],
            "another process is started in its place",
        )
        kill_child(fresh[0])
    command.finish()
    job.check_finished()


def large_document_job(
    make_job: MakeJob, corpora: Corpora, harness: ModuleType, *, workers: int, larges: int
) -> Job:
    """A job whose last file holds documents, all but at its beginning, that take seconds to encode."""
    job = make_job("small")
    small = corpora.make("small")
    folder = job.config.parent / "sources"
    folder.mkdir()
    rng = random.Random(5)  # noqa: S311
    fillers = b"".join(
        json.dumps({"text": corpora.text(rng, 20)}, ensure_ascii=False).encode() + b"\n"
        for _ in range(FILLERS)
    )
    words = corpora.text(rng, 5000)
    large = json.dumps({"text": words * (LARGE_CHARACTERS // len(words))}, ensure_ascii=False).encode()
    (folder / "large.jsonl").write_bytes(fillers + (large + b"\n") * larges + fillers)
    tree = harness.read_tree(job.config)
    tree["source"]["paths"] = [str(small / "*"), str(folder / "large.jsonl")]
    tree["processing"].update(workers=workers, batch_bytes=BATCH_BYTES)
    return harness.Job(folder.parent, tree)


def encoding(command: Command, dead: int = -1) -> psutil.Process | None:
    """The child that encodes a large document; not the dead one, whose memory takes a while to be gone."""
    children = [child for child in command.children() if child.pid != dead]
    return next((child for child in children if memory_of(child) > ENCODING_BYTES), None)


def test_q23_a_batch_that_kills_its_process_twice_ends_the_job_with_file_and_row(
    make_job: MakeJob, corpora: Corpora, harness: ModuleType
) -> None:
    """Q23 first run: reported with signal and input name, retried once, then exit status 5."""
    job = large_document_job(make_job, corpora, harness, workers=1, larges=1)
    command = job.start()
    first = command.until(lambda: encoding(command), "a tokenizer encodes the large document")
    kill_child(first)
    kill_child(command.until(lambda: encoding(command, first.pid), "another one encodes it again"))
    began = time.monotonic()
    command.finish(5)
    assert time.monotonic() - began < 30
    message = command.errors.splitlines()[-1]
    assert message.startswith("tokenloom: error: ")
    assert "large.jsonl" in message
    assert "signal 9" in message
    row = int(message.partition(" row ")[2].split()[0].rstrip(":").replace(",", ""))
    lines = (job.config.parent / "sources/large.jsonl").read_bytes().splitlines(keepends=True)
    assert row <= FILLERS + 1
    assert sum(map(len, lines[row - 1 : FILLERS])) <= BATCH_BYTES
    before = job.committed()
    assert before
    job.check_interrupted()
    job.run()
    assert job.committed().items() >= before.items()
    assert job.stray_files() == []
    job.tool("catalog", "verify", str(job.output))


def test_a_process_that_dies_with_its_turn_at_a_large_document_gives_it_up(
    make_job: MakeJob, corpora: Corpora, harness: ModuleType
) -> None:
    """Very large documents are encoded one at a time; the next one does not wait for the dead."""
    job = large_document_job(make_job, corpora, harness, workers=2, larges=2)
    command = job.start()
    kill_child(command.until(lambda: encoding(command), "a tokenizer encodes a large document"))
    command.finish()
    assert "signal 9" in command.errors
    job.tool("catalog", "verify", str(job.output))


def kill_at_random(command: Command, rng: random.Random) -> bool:
    """Wait a random time and kill main or a child; whether it was main, or the end came first."""
    try:
        command.process.wait(rng.uniform(0.05, 1.2))
    except Exception:  # noqa: BLE001 - it still runs, which is what is wanted
        children = command.children()
        if children and rng.random() < 0.5:
            kill_child(rng.choice(children))
            return False
        command.process.send_signal(signal.SIGKILL)
        command.process.wait()
    return True


def test_q27_q73_random_kills_end_in_the_same_bytes(make_job: MakeJob) -> None:
    """Q27, Q73: 25 kills of main or children at random moments, with restarts; totals equal a recount."""
    shuffle = {"documents": "block", "block_documents": 150, "seed": 3, "files": True}
    job = make_job("mixed", shuffle=shuffle)
    rng = random.Random(27)  # noqa: S311
    kills, rounds, end = 0, 0, time.monotonic() + KILLING_SECONDS
    before: dict[str, tuple[int, int, int]] = {}
    while kills < KILLS and time.monotonic() < end:
        command = job.start(processing__workers=rng.choice((1, 2, 3)), processing__readers=rng.choice((1, 2)))
        while kills < KILLS and command.process.poll() is None:
            over = kill_at_random(command, rng)
            kills += command.process.returncode != 0
            if over:
                break
        command.wait()
        command.check_gone()
        assert command.process.returncode in (0, -signal.SIGKILL, 5), command.errors
        job.check_interrupted()
        after = job.committed()
        assert after.items() >= before.items()
        before = after
        if command.process.returncode == 0:
            job.check_finished()
            job.clear()
            before, rounds = {}, rounds + 1
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()
    job.tool("catalog", "verify", str(job.output))
    print(f"{kills} kills, {rounds + 1} whole jobs")
