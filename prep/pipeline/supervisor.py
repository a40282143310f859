"""The processes of a job: who does what, what is in flight, and what happens when one of them dies.

Every child has its own line to the main process and talks to nobody else, so a child that is killed can
neither hold a lock nor leave a queue half written. The main process keeps each unit until its result is
here: when a child dies, its first unit is tried once more in a fresh process, and a second death ends the
job with the file and rows of that unit.

Results come out in the order of the document stream. What is in flight is bounded in bytes.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Self

from prep.catalog.errors import WorkerError
from prep.pipeline.channel import Channel, Payload
from prep.pipeline.messages import (
    Configure,
    Credit,
    Failed,
    Load,
    ReaderMessage,
    Ready,
    Span,
    StreamEnd,
    StreamRequest,
    TakeTurn,
    Task,
    TokenizedMessage,
    Unit,
    WantsTurn,
)
from prep.pipeline.processes import start_reader, start_tokenizer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from multiprocessing.process import BaseProcess

    from prep.pipeline.plan import Feed
    from prep.pipeline.processes import Started
    from prep.pipeline.settings import EncoderSettings, StageSettings
    from prep.pipeline.tokenizer import TokenBlock

log = logging.getLogger(__name__)

QUEUED_TASKS = 2
"""Units a tokenizer has at a time: one it works on and one to go on with."""
AHEAD_BLOCKS = 2
"""Blocks that a reader may send before its file's turn has come."""
MIN_BLOCKS = 64
"""Blocks that may be in flight at least, however small; each holds a descriptor, of which there are few."""
ATTEMPTS = 2
POLL_SECONDS = 0.2
DOWNLOAD_POLL_SECONDS = 0.02


@dataclass
class _Block:
    """A unit on its way.

    Attributes:
        key: sorts by place in the document stream.
        weight: what it counts in the window, in bytes.
        deaths: processes that died while they worked on it.
    """

    key: tuple[int, int]
    unit: Unit
    weight: int
    payload: Payload | None = None
    deaths: int = 0
    result: TokenBlock | Failed | None = None

    def __lt__(self, other: _Block) -> bool:
        return self.key < other.key


@dataclass
class _Item:
    """A unit that the feed gave, or a stream with the blocks that have come of it."""

    number: int
    request: StreamRequest | None = None
    blocks: deque[_Block] = field(default_factory=deque)
    closed: bool = True
    reader: _Child | None = None
    received: int = 0
    credit: int = 0
    deaths: int = 0
    resume: int = 0

    @property
    def held(self) -> int:
        return sum(block.weight for block in self.blocks)


@dataclass(eq=False)
class _Child:
    """A process with our end of its line, and what it has been given."""

    process: BaseProcess
    channel: Channel
    is_reader: bool
    queue: deque[_Block] = field(default_factory=deque)
    item: _Item | None = None
    ready: bool = False


class Supervisor:
    """Runs tokenizer and reader processes over the work of a feed; a context manager.

    Args:
        workers: tokenizer processes, started at once.
        readers: reader processes at most, started when they are needed.
    """

    def __init__(self, workers: int, readers: int) -> None:
        self._max_readers = readers
        self._load: Load | None = None
        self._tokenizer: Payload | None = None
        self._settings: StageSettings | None = None
        self._children: list[_Child] = []
        self._items: deque[_Item] = deque()
        self._waiting: list[_Block] = []
        self._held = 0
        self._next_item = 0
        self._ready: Ready | None = None
        self._failed_starts = 0
        self._turns: deque[_Child] = deque()
        self._window = 0
        self._least_weight = 1
        try:
            for _ in range(workers):
                self._adopt(start_tokenizer(), is_reader=False)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes. They hold nothing that is not also here."""
        for child in self._children:
            child.process.kill()
        for child in self._children:
            child.process.join()
            child.process.close()
            child.channel.close()
        for item in self._items:
            for block in item.blocks:
                if block.payload is not None:
                    block.payload.close()
        if self._tokenizer is not None:
            self._tokenizer.close()
        self._children.clear()
        self._items.clear()
        self._waiting.clear()

    def load(self, encoder: EncoderSettings, encoding_json: str) -> None:
        """Tell the tokenizers which backend to load for which tokenizer."""
        self._load, self._tokenizer = Load(encoder), Payload.of([[encoding_json.encode()]])
        for child in self._children:
            self._send(child, self._load, self._tokenizer)

    def expect_streams(self, count: int) -> None:
        """Start reader processes for files that will be read as streams, before their turn comes."""
        for _ in range(min(count, self._max_readers)):
            self._adopt(start_reader(), is_reader=True)

    def ready(self) -> Ready:
        """Wait for the first tokenizer to have its backend loaded."""
        while self._ready is None:
            self._pump(POLL_SECONDS)
        return self._ready

    def configure(self, settings: StageSettings) -> None:
        """Give every process its settings; comes before `results`."""
        self._settings = settings
        workers = sum(not child.is_reader for child in self._children)
        self._window = settings.batch_bytes * (QUEUED_TASKS * workers + 2)
        self._least_weight = max(1, self._window // max(MIN_BLOCKS, 2 * QUEUED_TASKS * workers))
        for child in self._children:
            self._send(child, Configure(settings))

    def results(self, feed: Feed) -> Generator[TokenBlock | Failed, None, None]:
        """Work through a feed; results in the order of the document stream."""
        while True:
            self._fill(feed)
            yield from self._take()
            if feed.finished and not self._items:
                return
            if self._items:
                self._pump(POLL_SECONDS)
            else:
                feed.wait(DOWNLOAD_POLL_SECONDS)
                self._pump(0)

    def _take(self) -> Iterator[TokenBlock | Failed]:
        """Results that are next in order."""
        while self._items:
            item = self._items[0]
            if not item.blocks:
                if not item.closed:
                    self._grant(item)
                    return
                self._items.popleft()
                continue
            block = item.blocks[0]
            if block.result is None:
                return
            item.blocks.popleft()
            self._held -= block.weight
            self._fill_workers()
            yield block.result
            self._grant(item)

    # ---- handing out work

    def _fill(self, feed: Feed) -> None:
        while self._held < self._window and not feed.finished and self._open_streams() < self._max_readers:
            work = feed.next()
            if work is None:
                break
            item = _Item(self._next_item)
            self._next_item += 1
            self._items.append(item)
            if isinstance(work, Unit):
                self._add_block(item, work, None)
            else:
                item.request, item.resume, item.closed = work, work.start, False
                self._start_stream(item)
        self._fill_workers()

    def _open_streams(self) -> int:
        return sum(not item.closed for item in self._items)

    def _add_block(self, item: _Item, unit: Unit, payload: Payload | None) -> None:
        weight = max(unit.nbytes, self._least_weight)
        block = _Block((item.number, item.received), unit, weight, payload)
        item.received += 1
        item.blocks.append(block)
        self._held += weight
        heapq.heappush(self._waiting, block)

    def _fill_workers(self) -> None:
        """Give waiting blocks to the tokenizers with the least to do."""
        while self._waiting:
            free = [
                child for child in self._children if not child.is_reader and len(child.queue) < QUEUED_TASKS
            ]
            if not free:
                return
            child = min(free, key=lambda child: len(child.queue))
            block = heapq.heappop(self._waiting)
            child.queue.append(block)
            self._send(child, Task(block.key[1], block.unit), block.payload)

    def _start_stream(self, item: _Item) -> None:
        readers = [child for child in self._children if child.is_reader]
        child = next((child for child in readers if child.item is None), None)
        if child is None:
            child = self._adopt(start_reader(), is_reader=True)
        assert item.request is not None
        child.item, item.reader, item.credit = item, child, 0
        self._send(child, item.request._replace(start=item.resume))
        self._grant(item)

    def _grant(self, item: _Item) -> None:
        """Let a stream's reader send more, as far as there is room for its blocks."""
        if item.closed or item.reader is None or self._settings is None:
            return
        is_next = bool(self._items) and self._items[0] is item
        room = self._window if is_next else self._window - self._held
        allowed = max(AHEAD_BLOCKS, room // self._settings.batch_bytes)
        if item.blocks and item.held >= self._window:
            return
        more = allowed - len(item.blocks) - item.credit
        if more > 0:
            item.credit += more
            self._send(item.reader, Credit(more))

    # ---- what comes back

    def _pump(self, seconds: float) -> None:
        """Wait for children, and take what they say."""
        sources: dict[Any, _Child] = {}
        for child in self._children:
            sources[child.channel.connection] = child
            sources[child.process.sentinel] = child
        for source in wait(list(sources), seconds):
            child = sources[source]
            if child in self._children:
                self._listen(child)

    def _listen(self, child: _Child) -> None:
        try:
            while child.channel.connection.poll():
                message, payload = child.channel.receive()
                self._handle(child, message, payload)
        except EOFError:
            self._bury(child)

    def _handle(self, child: _Child, message: Any, payload: Payload | None) -> None:
        if isinstance(message, TokenizedMessage):
            assert payload is not None
            self._finish(child, _token_block(message, payload))
        elif isinstance(message, Ready):
            child.ready = True
            self._failed_starts = 0
            self._check_ready(message)
        elif isinstance(message, WantsTurn):
            self._turns.append(child)
            if self._turns[0] is child:
                self._send(child, TakeTurn())
        elif child.is_reader:
            self._handle_reader(child, message, payload)
        else:
            assert isinstance(message, Failed)
            self._finish(child, message)

    def _handle_reader(self, child: _Child, message: Any, payload: Payload | None) -> None:
        item = child.item
        assert item is not None
        assert item.request is not None
        if isinstance(message, ReaderMessage):
            item.credit -= 1
            item.deaths = 0
            span = message.span
            item.resume = span.stop + 1 if span.kind == "oversized" else span.stop
            self._add_block(item, Unit((span,), (item.request.file,)), payload)
            self._fill_workers()
            return
        child.item, item.reader, item.closed = None, None, True
        if isinstance(message, Failed):
            self._fail_stream(item, message)
        else:
            assert isinstance(message, StreamEnd)

    def _fail_stream(self, item: _Item, failure: Failed) -> None:
        item.closed = True
        item.blocks.append(_Block((item.number, item.received), Unit((), ()), 0, result=failure))

    def _finish(self, child: _Child, result: TokenBlock | Failed) -> None:
        block = child.queue.popleft()
        block.result = result
        if block.payload is not None:
            block.payload.close()
            block.payload = None
        self._end_turn(child)
        self._fill_workers()

    def _end_turn(self, child: _Child) -> None:
        if child not in self._turns:
            return
        was_first = self._turns[0] is child
        self._turns.remove(child)
        if was_first and self._turns:
            self._send(self._turns[0], TakeTurn())

    def _check_ready(self, ready: Ready) -> None:
        if self._ready is None:
            self._ready = ready
        elif ready != self._ready:
            raise WorkerError(
                f"two tokenizer processes disagree: {ready.error or 'other ids for the probes'}"
            )

    # ---- processes

    def _adopt(self, started: Started, *, is_reader: bool) -> _Child:
        child = _Child(started.process, Channel(started.connection), is_reader)
        self._children.append(child)
        if not is_reader and self._load is not None:
            self._send(child, self._load, self._tokenizer)
        if self._settings is not None:
            self._send(child, Configure(self._settings))
        return child

    def _send(self, child: _Child, message: Any, payload: Payload | None = None) -> None:
        try:
            child.channel.send(message, payload)
        except OSError:
            log.debug("%s %s is gone", child.process.name, child.process.pid)  # `_listen` finds it

    def _bury(self, child: _Child) -> None:
        """A child has died: start another and give it the work back."""
        self._children.remove(child)
        child.process.kill()  # its line is closed; whatever it still does is of no use
        child.process.join()
        how = _describe_exit(child.process.exitcode)
        child.process.close()
        child.channel.close()
        log.warning(
            "a %s process %s%s", "reader" if child.is_reader else "tokenizer", how, _working_on(child)
        )
        self._end_turn(child)
        if child.is_reader:
            self._bury_reader(child, how)
            return
        if not child.ready:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS:
                raise WorkerError(f"a tokenizer process {how} before it was ready")
        for position, block in enumerate(child.queue):
            block.deaths += position == 0 and child.ready
            if block.deaths >= ATTEMPTS:
                block.result = Failed(block.unit.spans[0], None, _death_message("tokenizer", how), "worker")
            else:
                heapq.heappush(self._waiting, block)
        self._adopt(start_tokenizer(), is_reader=False)
        self._fill_workers()

    def _bury_reader(self, child: _Child, how: str) -> None:
        item = child.item
        if item is None:
            return
        item.reader = None
        item.deaths += 1
        assert item.request is not None
        if item.deaths >= ATTEMPTS:
            span = Span(item.request.file_idx, "lines", item.resume, item.resume, -1, 0)
            self._fail_stream(item, Failed(span, None, _death_message("reader", how), "worker"))
        else:
            self._start_stream(item)


def _token_block(message: TokenizedMessage, payload: Payload) -> TokenBlock:
    from prep.pipeline.tokenizer import TokenBlock  # noqa: PLC0415 - loads the readers

    documents, drops, text = payload.batch(0), payload.batch(1), payload.data(2)
    payload.close()
    return TokenBlock(message.results, documents, drops, message.sample, text)


def _working_on(child: _Child) -> str:
    if child.queue:
        unit = child.queue[0].unit
        span = unit.spans[0]
        return f" while it worked on {unit.files[0].path} ({span.kind} from {span.start:,})"
    if child.item is not None and child.item.request is not None:
        return f" while it read {child.item.request.file.path}"
    return ""


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by signal {-code}"
    return f"ended with status {code}"


def _death_message(who: str, how: str) -> str:
    return (
        f"a {who} process {how} twice on this batch. If the machine ran out of memory, lower "
        "processing.workers or processing.batch_bytes; then run the same command again to continue"
    )
