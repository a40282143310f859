"""How far a job is: bars on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from prep.job import Progress

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


class ProgressDisplay:
    """Shows a job's progress on standard error; a context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._logged = self._began
        self._first_bytes: int | None = None
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: Progress) -> None:
        """Take note of a new state."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._first_bytes is None:
            self._first_bytes = progress.source_bytes
        if sys.stderr.isatty():
            self._draw(progress, now)
        elif now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.info("%s", self._line(progress, now))

    def _draw(self, progress: Progress, now: float) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=progress.total_bytes,
                initial=self._first_bytes or 0,
                unit="B",
                unit_scale=True,
                file=sys.stderr,
            )
        rate = progress.fresh_tokens / max(1e-9, now - self._began)
        self._bar.set_postfix_str(
            f"files {progress.files}/{progress.total_files}, documents {progress.documents:,}, "
            f"tokens {progress.tokens:,}, {rate:,.0f} tokens/s, shards {progress.shards}",
            refresh=False,
        )
        self._bar.update(progress.source_bytes - self._bar.n)

    def _line(self, progress: Progress, now: float) -> str:
        elapsed = max(1e-9, now - self._began)
        done = progress.source_bytes - (self._first_bytes or 0)
        left = (progress.total_bytes - progress.source_bytes) * elapsed / done if done > 0 else None
        return (
            f"{progress.source_bytes / max(1, progress.total_bytes):.1%} of {progress.total_bytes:,} bytes, "
            f"files {progress.files}/{progress.total_files}, documents {progress.documents:,}, "
            f"tokens {progress.tokens:,}, {progress.fresh_tokens / elapsed:,.0f} tokens/s, "
            f"shards {progress.shards}" + (f", {left:,.0f} s left" if left is not None else "")
        )
