"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prep.catalog.commit import store_errors
from prep.catalog.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def lock_folder(job: Path, hint: str) -> Iterator[None]:
    """Hold the lock of a job folder; the kernel gives up a dead owner's.

    Args:
        job: the folder `_job`, which exists.
        hint: what else to do than to wait for the other run or to end it.

    Raises:
        RefusedError: another run holds it.
    """
    with store_errors(job / "lock"):
        stream = (job / "lock").open("a+", encoding="utf-8")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            owner = stream.read().strip()
            raise RefusedError(
                f"{job.parent}: another run is working in this folder ({owner or 'owner unknown'}); "
                f"wait for it, end it, or {hint}"
            ) from error
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {platform.node()}")
        stream.flush()
        yield
