"""A two-way line between two processes that carries small messages and large payloads.

A payload lies in anonymous memory that has no name in any file system: its descriptor travels over the
socket, and the kernel frees it with the last process that holds it, however that process ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from prep.catalog.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    import pyarrow as pa

    from prep.pipeline.messages import Message

ALIGNMENT = 64
COPY_BYTES = 1 << 20
"""Payloads up to this size are copied rather than mapped."""

Part: TypeAlias = "pa.RecordBatch | Sequence[bytes | memoryview]"
"""What a payload holds: a record batch, or pieces of bytes that become one byte string."""


class Payload:
    """Parts in anonymous memory: record batches and byte strings."""

    def __init__(self, descriptor: int, sizes: Sequence[int]) -> None:
        self._descriptor = descriptor
        self.sizes = tuple(sizes)
        self._memory: mmap.mmap | bytes | None = None

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Payload:
        """Write parts; a record batch becomes an Arrow stream."""
        descriptor = _anonymous_file()
        sizes = []
        with os.fdopen(descriptor, "wb", buffering=0, closefd=False) as stream:
            for part in parts:
                sizes.append(_write(stream, part))
                stream.seek(-(-stream.tell() // ALIGNMENT) * ALIGNMENT)
            stream.truncate()
        return cls(descriptor, sizes)

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def _view(self, part: int) -> memoryview:
        if self._memory is None:
            # A mapping keeps a descriptor open, and small payloads can be very many.
            size = os.fstat(self._descriptor).st_size
            small = size <= COPY_BYTES
            self._memory = (
                os.pread(self._descriptor, size, 0)
                if small
                else mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
            )
        start = 0
        for size in self.sizes[:part]:
            start = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        return memoryview(self._memory)[start : start + self.sizes[part]]

    def batch(self, part: int) -> pa.RecordBatch:
        """A record batch over the shared memory, without a copy; valid after `close`."""
        import pyarrow as pa  # noqa: PLC0415 - a job starts its processes before it loads Arrow

        with pa.ipc.open_stream(pa.py_buffer(self._view(part))) as reader:
            return reader.read_next_batch()

    def data(self, part: int) -> bytes:
        """A copy of a byte string."""
        return bytes(self._view(part)) if self.sizes[part] else b""

    def close(self) -> None:
        """Close the descriptor; record batches that were taken keep the memory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._memory = None


def _write(stream: BinaryIO, part: Part) -> int:
    start = stream.tell()
    if hasattr(part, "schema"):
        import pyarrow as pa  # noqa: PLC0415

        with pa.ipc.new_stream(pa.PythonFile(stream, mode="w"), part.schema) as writer:
            writer.write_batch(part)
        return stream.tell() - start
    for piece in part:
        view = memoryview(piece)
        while view:
            view = view[stream.write(view) :]
    return stream.tell() - start


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tokenloom")
    with tempfile.TemporaryFile() as stream:
        return os.dup(stream.fileno())


class Channel:
    """One end of the line, over a duplex `multiprocessing` pipe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def send(self, message: Message, payload: Payload | None = None) -> None:
        """Send a message; the payload stays open on this side.

        Raises:
            OSError: the other side is gone.
        """
        self.connection.send((message, payload.sizes if payload else None))
        if payload is not None:
            socket.send_fds(self._socket, [b"p"], [payload.descriptor])

    def receive(self) -> tuple[Any, Payload | None]:
        """Wait for the next message.

        Raises:
            EOFError: the other side is gone.
            WorkerError: the payload could not be taken.
        """
        try:
            message, sizes = self.connection.recv()
            if sizes is None:
                return message, None
            sent, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        except OSError as error:
            raise EOFError from error
        if not sent:
            raise EOFError
        if not descriptors:
            raise WorkerError(
                "a block of data was lost between processes: too many open files? Raise `ulimit -n`, or "
                "processing.batch_bytes"
            )
        return message, Payload(descriptors[0], sizes)

    def close(self) -> None:
        self._socket.close()
        self.connection.close()
