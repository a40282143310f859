"""Starting child processes.

This module and what it imports load nothing heavy, so that a job can start its tokenizer processes first and
load its own libraries while they load theirs.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple

from prep.catalog.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


class Started(NamedTuple):
    """A running child and our end of the line to it."""

    process: BaseProcess
    connection: Connection


def start_tokenizer() -> Started:
    """A tokenizer process that waits for Load."""
    return start_process("tokenizer", _tokenizer)


def start_reader() -> Started:
    """A reader process that waits for Configure."""
    return start_process("reader", _reader)


def start_process(name: str, target: Callable[[Connection], None]) -> Started:
    """A child process that runs `target` with its end of a line to us.

    Raises:
        WorkerError: the system gives no process, or no descriptors for the line to it.
    """
    context = get_context("spawn")
    try:
        resource_tracker.ensure_running()  # it lets signals in when it starts, so it must not start below
        ours, theirs = context.Pipe()
        with theirs, _closed_on_error(ours):
            process = context.Process(target=target, args=(theirs,), name=name, daemon=True)
            with _one_thread_each(), _signals_held():
                process.start()
    except OSError as error:
        raise WorkerError(
            f"a {name} process cannot be started: {error.strerror}; lower processing.workers and "
            "processing.readers, or raise the limits of this shell (`ulimit -n`, `ulimit -u`)"
        ) from error
    return Started(process, ours)


def serve_parent() -> None:
    """What a child does first: leave signals to its parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def _closed_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back while a child is started, so that none finds it half made; it lets them in itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tokenizer(connection: Connection) -> None:
    from prep.pipeline.worker import run_tokenizer  # noqa: PLC0415 - heavy, and only in the child

    run_tokenizer(connection)


def _reader(connection: Connection) -> None:
    from prep.pipeline.worker import run_reader  # noqa: PLC0415

    run_reader(connection)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Keep numpy of the children from starting threads that nobody uses; that costs 0.1 s of a processor."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]
