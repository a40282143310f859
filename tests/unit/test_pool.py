"""Tasks on child processes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from prep.catalog.errors import InputError, WorkerError
from prep.pool import run_tasks


def square(task: int) -> int:
    return task * task


def fail(task: int) -> int:
    if task == 3:
        raise InputError("task 3 cannot be read")
    return task


def break_down(task: int) -> int:
    return 1 // task


def die(task: int) -> int:
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def sleep(task: int) -> int:
    time.sleep(60 * task)
    return task


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_every_task_is_done_once(workers: int, count: int) -> None:
    done = dict(run_tasks(range(count), square, workers))
    assert done == {number: number * number for number in range(count)}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_task_goes_on(workers: int) -> None:
    with pytest.raises(InputError, match="task 3 cannot be read"):
        list(run_tasks(range(10), fail, workers))


def test_an_error_of_the_code_comes_with_its_place() -> None:
    with pytest.raises(WorkerError, match="ZeroDivisionError"):
        list(run_tasks(range(10), break_down, 2))


def test_a_child_that_dies_is_an_error_with_the_task() -> None:
    with pytest.raises(WorkerError, match=r"a process died at 2 \(exit status -9"):
        list(run_tasks(range(10), die, 2))


def test_closing_early_ends_the_children_at_once() -> None:
    results = run_tasks([0, 1, 1], sleep, 2)
    began = time.monotonic()
    assert next(results) == (0, 0)
    results.close()
    assert time.monotonic() - began < 30
