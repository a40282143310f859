"""Tasks on child processes: each child has one at a time, and results come as they are ready.

A child ends with its parent. One that dies, or a task that fails, ends the whole run.
"""

from __future__ import annotations

import traceback
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, TypeVar

from prep.catalog.errors import TokenloomError, WorkerError
from prep.pipeline.processes import Started, serve_parent, start_process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from multiprocessing.connection import Connection

JOIN_SECONDS = 5.0

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    tasks: Sequence[Task], work: Callable[[Task], Result], workers: int
) -> Generator[tuple[int, Result], None, None]:
    """The number and the result of each task, as they are ready; close the iterator to stop early.

    Args:
        tasks: what is sent to the children; begun in this order.
        work: a function of a module, which the children import.
        workers: child processes; 0: all is done in this process.

    Raises:
        TokenloomError: what a task raised.
        WorkerError: a child died or its code failed.
    """
    if workers == 0:
        for number, task in enumerate(tasks):
            yield number, work(task)
        return
    children: dict[Connection, Started] = {}
    try:
        for _ in range(min(workers, len(tasks))):
            child = start_process("scanner", partial(_serve, work))
            children[child.connection] = child
        yield from _share_out(tasks, children)
    finally:
        for child in children.values():
            child.process.kill()
        for child in children.values():
            child.process.join(JOIN_SECONDS)
            child.process.close()
            child.connection.close()


def _share_out(tasks: Sequence[Any], children: dict[Connection, Started]) -> Iterator[tuple[int, Any]]:
    waiting = iter(enumerate(tasks))
    begun: dict[Connection, int] = {}
    for connection, (number, task) in zip(children, waiting, strict=False):
        _send(children[connection], task)
        begun[connection] = number
    while begun:
        for ready in wait(list(begun)):
            connection = next(line for line in begun if line is ready)
            number = begun.pop(connection)
            result = _receive(children[connection], tasks[number])
            following = next(waiting, None)
            if following is not None:
                begun[connection] = following[0]
                _send(children[connection], following[1])
            yield number, result


def _send(child: Started, task: Any) -> None:
    try:
        child.connection.send(task)
    except OSError as error:
        raise _death(child, task) from error


def _receive(child: Started, task: Any) -> Any:
    try:
        result = child.connection.recv()
    except (EOFError, OSError) as error:
        raise _death(child, task) from error
    if isinstance(result, TokenloomError):
        raise result
    return result


def _death(child: Started, task: Any) -> WorkerError:
    child.process.join(JOIN_SECONDS)
    return WorkerError(
        f"a process died at {task} (exit status {child.process.exitcode}; -9 is often a lack of memory). "
        "Run the same command again, with fewer workers if memory is short"
    )


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    """What a child does: answer tasks until the line ends."""
    serve_parent()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            result = work(task)
        except TokenloomError as error:
            result = error
        except Exception:  # noqa: BLE001 - reported whole, and it stops the run
            result = WorkerError(traceback.format_exc())
        connection.send(result)
