"""How far a command is: bars on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from prep.job import Progress
    from prep.scanning import BuildProgress
    from runtime.observability.stream import StreamTotals

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0
DRAW_SECONDS = 0.2
THOUSAND = 1000


class Display:
    """Shows progress by bytes on standard error; a context manager."""

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

    def rate(self, count: int) -> float:
        """So many a second since the beginning."""
        return count / max(1e-9, time.monotonic() - self._began)

    def advance(self, done: int, total: int, counts: str) -> None:
        """Take note of the bytes done of a total, and of what else was counted."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._first_bytes is None:
            self._first_bytes = done
        if sys.stderr.isatty():
            self._draw(done, total, counts)
        elif now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.info("%s", self._line(done, total, counts))

    def _draw(self, done: int, total: int, counts: str) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                initial=self._first_bytes or 0,
                unit_scale=True,
                file=sys.stderr,
                bar_format="{percentage:3.0f}%|{bar}| {total_fmt}B, {remaining} left{postfix}",
            )
        self._bar.set_postfix_str(counts, refresh=False)
        self._bar.update(done - self._bar.n)

    def _line(self, done: int, total: int, counts: str) -> str:
        fresh = done - (self._first_bytes or 0)
        left = f", {(total - done) / self.rate(fresh):,.0f} s left" if fresh > 0 else ""
        return f"{done / max(1, total):.1%} of {total:,} bytes, {counts}{left}"


def short(number: float) -> str:
    """A count of three digits and a unit, so that a line of them fits a terminal."""
    for unit in ("", "k", "M", "G"):
        if round(number) < THOUSAND:
            return f"{number:.3g}{unit}"
        number /= THOUSAND
    return f"{number:,.3g}T"


class ProgressDisplay(Display):
    """Shows a job's progress."""

    def show(self, progress: Progress) -> None:
        """Take note of a new state."""
        self.advance(
            progress.source_bytes,
            progress.total_bytes,
            f"{progress.files}/{progress.total_files} files, {short(progress.documents)} docs, "
            f"{short(progress.tokens)} tokens, {short(self.rate(progress.fresh_tokens))} tokens/s",
        )


class BuildDisplay(Display):
    """Shows the progress of a scan of raw files."""

    def show(self, progress: BuildProgress) -> None:
        """Take note of a new state."""
        counts = f"{progress.files}/{progress.total_files} files, {short(progress.rows)} rows"
        self.advance(progress.bytes, progress.total_bytes, counts)


class StreamDisplay(Display):
    """Shows how batches come."""

    def show(self, totals: StreamTotals, steps: int | None) -> None:
        """Take note of a new state."""
        now = time.monotonic()
        on_terminal = sys.stderr.isatty()
        if self._quiet or now - self._logged < (DRAW_SECONDS if on_terminal else LOG_SECONDS):
            return
        self._logged = now
        seconds = max(totals.seconds, 1e-9)
        line = (
            f"{totals.batches:,}{f' of {steps:,}' if steps is not None else ''} batches, "
            f"{short(totals.tokens / seconds)} tokens/s, {totals.waiting_seconds / seconds:.0%} waiting"
        )
        if not on_terminal:
            log.info("%s", line)
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(bar_format="{desc}", leave=False, file=sys.stderr)
        self._bar.set_description_str(line)
