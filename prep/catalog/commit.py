"""How a file comes to exist: whole, durable, or not at all.

A file is written under a temporary name on the same file system, flushed to the device, renamed over its
final name, and the folder is flushed. A body that fails leaves nothing behind and its exception goes on.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from prep.catalog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def atomic_write(path: Path, *, scratch: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` when the body ends well.

    Args:
        path: the final name; an existing file is replaced.
        scratch: folder for the temporary file, on the same file system; default: beside `path`.

    Raises:
        StoreError: the file cannot be written (disk full, permission, read-only).
    """
    temporary = (scratch or path.parent) / f"{path.name}.tmp-{os.getpid()}"
    try:
        with store_errors(path), temporary.open("wb") as stream:
            yield stream
            publish(stream, temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def publish(stream: BinaryIO, temporary: Path, path: Path) -> None:
    """Make an open, complete temporary file durable under its final name."""
    stream.flush()
    os.fsync(stream.fileno())
    temporary.replace(path)
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's error into a StoreError that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot write: {reason}. What is committed stays; make room or mend the folder "
            "and run the same command again to continue."
        ) from error
