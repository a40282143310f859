"""Operators in a thread of their own, ahead of the training loop."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator, Sequence

    from runtime.blocks import Batch, Item


class Lane(Protocol):
    """What is made in advance.

    Attributes:
        ready: items behind the last operator.
        ended: nothing will be added to them.
    """

    ready: deque[Item]
    ended: bool

    def advance(self) -> tuple[list[Item], bool]:
        """Feed one item to the operators; what comes out, and whether that was the last."""

    def take(self) -> Batch | None:
        """The next batch that is ready; None: there is none yet, or no more."""


class Prefetcher:
    """Advances lanes in turn, each until it is so many batches ahead.

    What comes of a lane is the same in whatever order lanes are advanced. An error reaches the training loop
    when it asks for a batch that was not made because of it.

    Args:
        lanes: all of them.
        ahead: items of a lane that are made in advance.
    """

    def __init__(self, lanes: Sequence[Lane], ahead: int) -> None:
        self._lanes, self._ahead = list(lanes), ahead
        self._changed = threading.Condition()
        self._advancing = threading.Lock()
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="tokenloom-prefetch", daemon=True)
        self._thread.start()

    def next_batch(self, lane: Lane) -> Batch | None:
        """A lane's next batch; None at its end."""
        with self._changed:
            while True:
                batch = lane.take()
                if len(lane.ready) < self._ahead:
                    self._changed.notify_all()
                if batch is not None:
                    return batch
                if self._error is not None:
                    raise self._error
                if lane.ended and not lane.ready:
                    return None
                self._changed.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While nothing is advanced."""
        with self._advancing, self._changed:
            yield

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        try:
            while (lane := self._next_lane()) is not None:
                with self._advancing:
                    items, ended = lane.advance()
                    with self._changed:  # the end must not be seen before what came last
                        lane.ready.extend(items)
                        lane.ended = ended
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - handed to the training loop
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_lane(self) -> Lane | None:
        """The lane whose turn it is to be advanced; None when all are at their end, or it is time to stop."""
        with self._changed:
            while not self._stopping and not all(lane.ended for lane in self._lanes):
                for lane in self._lanes:
                    if not lane.ended and len(lane.ready) < self._ahead:
                        self._lanes.remove(lane)
                        self._lanes.append(lane)
                        return lane
                self._changed.wait()
        return None
