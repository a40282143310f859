"""Runs that meet: two on one output folder, several on one host, and what a dead one has left."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tests.faults.conftest import MakeJob
    from tests.faults.harness import Command, Job


def started_and_held(job: Job) -> Command:
    """A run that has committed two shards and is stopped there until it is continued."""
    command = job.start()
    command.until(lambda: len(job.journal()) >= 2, "two shards are committed")
    command.signal(signal.SIGSTOP)
    command.until(lambda: psutil.Process(command.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
    return command


def test_a_second_run_on_the_same_folder_is_refused_and_names_the_owner(make_job: MakeJob) -> None:
    job = make_job("plain")
    first = started_and_held(job)
    before = job.committed()
    second = job.run(status=4)
    message = second.errors.splitlines()[-1]
    assert message.startswith("tokenloom: error: ")
    assert str(job.output) in message
    assert str(first.pid) in message
    first.signal(signal.SIGCONT)
    first.finish()
    assert job.committed().items() >= before.items()
    job.check_finished()


def test_restart_does_not_touch_the_folder_of_a_run_that_works_in_it(make_job: MakeJob) -> None:
    job = make_job("plain")
    first = started_and_held(job)
    before = job.committed()
    second = job.run("--restart", status=4)
    assert str(first.pid) in second.errors
    assert job.committed() == before
    first.signal(signal.SIGCONT)
    first.finish()
    job.check_finished()


def test_two_that_start_at_the_same_time_end_in_one_result(make_job: MakeJob) -> None:
    job = make_job("small")
    commands = [job.start() for _ in range(4)]
    statuses = sorted(command.wait() for command in commands)
    for command in commands:
        command.check_gone()
        assert "Traceback" not in command.errors
    # One of them works; a late one may find the work done.
    assert set(statuses) <= {0, 4}
    assert statuses[0] == 0
    job.check_finished()


def test_q30_the_lock_file_of_a_dead_process_does_not_matter(make_job: MakeJob) -> None:
    """Q30: killed and started again at once."""
    job = make_job("small")
    (job.output / "_job").mkdir(parents=True)
    (job.output / "_job/lock").write_text("process 1 on another-host", encoding="ascii")
    for _ in range(3):
        command = job.start()
        command.until((job.output / "_job/job.json").exists, "the job's record is written")
        command.process.kill()  # its children may still be on their way out when the next run starts
        command.process.wait()
    job.run()
    job.check_finished()


def test_q30_different_runs_on_one_host_do_not_touch_each_other(make_job: MakeJob) -> None:
    """Q30: three at once; one is killed and leaves the others and their files alone."""
    jobs = [make_job("small"), make_job("small"), make_job("plain")]
    commands = [job.start(processing__workers=1) for job in jobs]
    commands[2].until(jobs[2].journal, "a shard is committed")
    commands[2].process.kill()
    for job, command in zip(jobs[:2], commands[:2], strict=True):
        command.finish()
        job.check_finished()
    commands[2].process.wait()
    commands[2].check_gone()
    jobs[2].run()
    jobs[2].check_finished()


def test_p4_an_unfinished_folder_is_no_catalog(make_job: MakeJob) -> None:
    job = make_job("plain")
    command = started_and_held(job)
    shown = job.tool("catalog", "show", str(job.output), status=4)
    assert "unfinished" in shown.errors
    command.signal(signal.SIGCONT)
    command.finish()
    job.tool("catalog", "verify", str(job.output))


def test_a_finished_job_says_so_and_does_no_work(make_job: MakeJob) -> None:
    """Q29, third part: another job in a finished folder is refused unless it is asked to begin anew."""
    job = make_job("small")
    job.run()
    before, inodes = job.result(), job.committed()
    again = job.run()
    assert "nothing to do" in again.printed
    refused = job.run(status=4, output__shard_size=30_000)
    assert "output.shard_size" in refused.errors
    assert (job.result(), job.committed()) == (before, inodes)
    job.run("--restart")
    job.check_finished()
    assert job.committed() != inodes
