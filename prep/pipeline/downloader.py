"""The downloading stage: files behind fsspec URLs come to `_job/tmp`, a few ahead of the readers.

Local files are used in place. Transfers run in a thread of the main process, because some file systems
(`memory://`) exist only there, and because a transfer waits for the network, not for a processor.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prep.catalog.errors import InputError, StoreError, TokenloomError
from prep.pipeline.messages import DownloaderMessage
from prep.readers import COMPRESSIONS, compression_of
from prep.sources.locations import public_location

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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

    def release(self, file_idx: int) -> None:
        """Remove a download that nobody needs any more."""
        with self._changed:
            message = self._ready.pop(file_idx, None)
            if message is None:
                return
            self._held -= self._files[file_idx].size
            self._changed.notify_all()
        (self._folder / message.file_path).unlink(missing_ok=True)

    def close(self) -> None:
        """Stop transferring and remove what is there."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)  # a transfer that hangs ends with the process
        for file_idx in list(self._ready):
            self.release(file_idx)

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
        suffix = next(
            (end for end in COMPRESSIONS if end == compression_of(public_location(source.location))), ""
        )
        target = self._folder / f"download-{file_idx:06}{suffix}"
        received = 0
        try:
            import fsspec  # noqa: PLC0415 - only remote files need it

            with fsspec.open(source.location, "rb", **self._options) as remote, target.open("wb") as local:
                while (chunk := remote.read(CHUNK_BYTES)) and not self._closing:
                    local.write(chunk)
                    received += len(chunk)
        except OSError as error:
            target.unlink(missing_ok=True)
            if error.filename == str(target):
                raise StoreError(f"{target}: cannot write: {error.strerror}") from error
            raise InputError(f"{source.name}: transfer failed after {received:,} bytes: {error}") from error
        if received != source.size and not self._closing:
            target.unlink(missing_ok=True)
            raise InputError(
                f"{source.name}: transfer mismatch: expected {source.size:,} bytes as listed, "
                f"received {received:,}"
            )
        return str(target)
