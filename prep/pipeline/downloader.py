"""The downloading stage: files behind fsspec URLs come to `_job/tmp`, a few ahead of the readers.

Local files are used in place. Transfers run in a thread of the main process, because some file systems
(`memory://`) exist only there, and because a transfer waits for the network, not for a processor.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from prep.catalog.commit import store_errors
from prep.catalog.errors import InputError, TokenloomError
from prep.pipeline.messages import DownloaderMessage
from prep.readers import compression_of
from prep.sources.locations import describe_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prep.sources.listing import SourceFile

CHUNK_BYTES = 1 << 20
CLOSE_SECONDS = 2.0


class Downloader:
    """Keeps remote files on local disk while they are read.

    Args:
        files: the source list.
        first: the first file that will be read.
        folder: where downloads go.
        limit_bytes: how much may lie there at a time; one larger file may lie there alone.
        options: for the fsspec file systems.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        first: int,
        folder: Path,
        limit_bytes: int,
        options: Mapping[str, Any],
    ) -> None:
        self._files = files
        self._folder = folder
        self._limit = limit_bytes
        self._options = dict(options)
        self._ready: dict[int, DownloaderMessage] = {}
        self._held = 0
        self._error: TokenloomError | None = None
        self._changed = threading.Condition()
        self._closing = False
        remote = [index for index in range(first, len(files)) if not files[index].is_local]
        self._thread = threading.Thread(target=self._run, args=(remote,), name="downloader", daemon=True)
        if remote:
            self._thread.start()

    def local_path(self, file_idx: int) -> str | None:
        """The path of a source file, or None as long as it is not there.

        Raises:
            InputError: it could not be transferred.
        """
        if self._files[file_idx].is_local:
            return self._files[file_idx].location
        with self._changed:
            message = self._ready.get(file_idx)
            if message is None and self._error is not None:
                raise self._error
            return message.file_path if message else None

    def wait(self, seconds: float) -> None:
        """Wait until another transfer has ended, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def release_before(self, file_idx: int) -> None:
        """Remove the downloads in front of a file; nobody needs them any more."""
        with self._changed:
            passed = [number for number in self._ready if number < file_idx]
            for number in passed:
                message = self._ready.pop(number)
                Path(message.file_path).unlink(missing_ok=True)
                self._held -= self._files[number].size
            if passed:
                self._changed.notify_all()

    def close(self) -> None:
        """Stop transferring and remove what is there."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)  # a transfer that hangs ends with the process
        self.release_before(len(self._files))

    def _run(self, remote: Sequence[int]) -> None:
        for file_idx in remote:
            size = self._files[file_idx].size
            with self._changed:
                while self._held and self._held + size > self._limit and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                self._held += size
            try:
                message = DownloaderMessage(file_idx, self._fetch(file_idx))
            except TokenloomError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._ready[file_idx] = message
                self._changed.notify_all()

    def _fetch(self, file_idx: int) -> str:
        source = self._files[file_idx]
        suffix = compression_of(source.name) or ""
        target = self._folder / f"download-{file_idx:06}{suffix}"
        try:
            received = self._transfer(source, target)
        except TokenloomError:
            target.unlink(missing_ok=True)
            raise
        except Exception as error:  # noqa: BLE001
            # Each file system raises its own kinds; whatever it is, the job must hear of it.
            target.unlink(missing_ok=True)
            reason = describe_error(error, source.location)
            raise InputError(f"{source.name}: transfer failed: {reason}") from None
        if received != source.size and not self._closing:
            target.unlink(missing_ok=True)
            raise InputError(
                f"{source.name}: transfer mismatch: expected {source.size:,} bytes as listed, "
                f"received {received:,}"
            )
        return str(target)

    def _transfer(self, source: SourceFile, target: Path) -> int:
        """Copy a file; returns how many bytes came, at most a little more than were announced."""
        import fsspec  # noqa: PLC0415 - only remote files need it

        received = 0
        with fsspec.open(source.location, "rb", **self._options) as remote, _local(target) as local:
            while received <= source.size and not self._closing:
                chunk = remote.read(min(CHUNK_BYTES, source.size - received + 1))
                if not chunk:
                    break
                with store_errors(target):
                    local.write(chunk)
                received += len(chunk)
        return received


@contextmanager
def _local(target: Path) -> Iterator[BinaryIO]:
    with store_errors(target):
        stream = target.open("wb", buffering=0)
    with stream:
        yield stream
