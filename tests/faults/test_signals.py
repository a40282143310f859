"""SIGTERM and Ctrl-C at any moment: a stop within 5 s that says how to go on, and the same bytes after."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import MakeJob
    from tests.faults.harness import Command, Job

STOP_SECONDS = 5.0
SIGNALS = [
    pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    pytest.param(signal.SIGINT, 130, id="SIGINT"),
]


def check_stopped(command: Command, sent: float, number: signal.Signals, status: int) -> None:
    """The command ended in time, with one message that says how to go on, and left no process."""
    found = command.wait(STOP_SECONDS * 4)
    took = time.monotonic() - sent
    command.check_gone()
    assert found == status, command.errors
    assert took < STOP_SECONDS
    assert "Traceback" not in command.errors
    message = command.errors.splitlines()[-1]
    assert number.name in message
    assert "the same command" in message


@pytest.mark.parametrize(("number", "status"), SIGNALS)
@pytest.mark.parametrize("corpus", ["plain", "streams"])
def test_q23_a_signal_stops_the_job_and_the_next_run_goes_on(
    make_job: MakeJob, corpus: str, number: signal.Signals, status: int
) -> None:
    """Q23 third run: what is committed stays, nothing half written counts as output."""
    job = make_job(corpus)
    command = job.start()
    command.until(lambda: len(job.journal()) >= 4, "four shards are committed")
    sent = time.monotonic()
    command.signal(number)
    check_stopped(command, sent, number, status)
    job.check_interrupted()
    before = job.committed()
    assert len(before) >= 4
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_to_the_whole_process_group_is_the_same(
    make_job: MakeJob, number: signal.Signals, status: int
) -> None:
    """Ctrl-C on a terminal, a batch system or a container runtime send it to every process at once."""
    job = make_job("streams")
    command = job.start()
    command.until(lambda: len(job.journal()) >= 2, "two shards are committed")
    sent = time.monotonic()
    command.signal_all(number)
    check_stopped(command, sent, number, status)
    job.check_interrupted()
    assert len(job.journal()) >= 2


def test_a_signal_that_is_sent_again_and_again_changes_nothing(make_job: MakeJob) -> None:
    job = make_job("plain")
    command = job.start()
    command.until(lambda: len(job.journal()) >= 2, "two shards are committed")
    sent = time.monotonic()
    while command.process.poll() is None:
        command.signal(signal.SIGINT)
        command.signal(signal.SIGTERM)
        time.sleep(0.005)
    check_stopped(command, sent, signal.SIGINT, 130)
    job.check_interrupted()


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_with_every_stage_in_one_process(
    make_job: MakeJob, number: signal.Signals, status: int
) -> None:
    job = make_job("plain", workers=0)
    command = job.start()
    command.until(lambda: len(job.journal()) >= 2, "two shards are committed")
    sent = time.monotonic()
    command.signal(number)
    check_stopped(command, sent, number, status)
    job.check_interrupted()
    assert len(job.journal()) >= 2


def started(command: Command, job: Job, moment: str) -> bool:
    """Whether a command has come as far in its start as a moment."""
    if not command.catches(signal.SIGTERM):
        return False  # the interpreter itself is still starting
    if moment == "handler":
        return True
    if moment == "first child":
        return bool(command.children())
    return (job.output / "_job" / moment).exists()


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_at_any_moment_of_the_start_stops_it(
    make_job: MakeJob, number: signal.Signals, status: int
) -> None:
    job = make_job("small")
    rng = random.Random(int(number))  # noqa: S311
    for moment in ("handler", "handler", "lock", "first child", "first child", "tmp", "job.json"):
        command = job.start()
        command.until(lambda moment=moment, command=command: started(command, job, moment), moment)
        time.sleep(rng.random() * 0.08)
        sent = time.monotonic()
        command.signal(number)
        check_stopped(command, sent, number, status)
        job.check_interrupted()
    job.run()
    job.check_finished()


def test_a_terminal_that_is_closed_leaves_no_process(make_job: MakeJob) -> None:
    job = make_job("plain")
    before_test = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        command = job.start()
    finally:
        signal.signal(signal.SIGHUP, before_test)
    command.until(lambda: len(job.journal()) >= 2, "two shards are committed")
    command.signal_all(signal.SIGHUP)
    assert command.wait(STOP_SECONDS) != 0
    command.check_gone()
    job.check_interrupted()
    before = job.committed()
    job.run()
    assert job.committed().items() >= before.items()
    job.check_finished()
