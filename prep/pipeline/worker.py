"""What a child process does: a tokenizer or a reader, driven by messages."""

from __future__ import annotations

import gc
import os
import traceback
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prep.catalog.errors import InputError, TokenloomError
from prep.pipeline.channel import Channel, Payload
from prep.pipeline.inline import load_encoder
from prep.pipeline.messages import (
    Configure,
    Credit,
    Failed,
    Load,
    ReaderMessage,
    Span,
    StreamEnd,
    StreamRequest,
    TakeTurn,
    Task,
    TokenizedMessage,
    WantsTurn,
)
from prep.pipeline.processes import serve_parent
from prep.pipeline.reader import read_stream
from prep.pipeline.tokenizer import SpanError, TokenStage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from prep.pipeline.messages import Message
    from prep.pipeline.settings import StageSettings
    from prep.tokenizers.protocol import Encoder

GARBAGE_THRESHOLD = 50_000

OUT_OF_MEMORY = 137
"""Exit status of a process that ran out of memory, as if the kernel had killed it."""


def run_tokenizer(connection: Connection) -> None:
    """Entry of a tokenizer process."""
    _begin()
    channel = Channel(connection)
    try:
        message, payload = channel.receive()
    except EOFError:
        return
    assert isinstance(message, Load)
    assert payload is not None
    encoder, ready = load_encoder(message.settings, payload.data(0).decode())
    payload.close()
    channel.send(ready)
    if encoder is not None:
        _Tokenizer(channel, encoder).run()


def run_reader(connection: Connection) -> None:
    """Entry of a reader process."""
    _begin()
    _Reader(Channel(connection)).run()


def _begin() -> None:
    serve_parent()
    # Parsed records are many and hold no cycles; looking for them at the usual pace costs time.
    gc.set_threshold(GARBAGE_THRESHOLD)


class _Tokenizer:
    """Takes tasks in order and answers each."""

    def __init__(self, channel: Channel, encoder: Encoder) -> None:
        self._channel = channel
        self._encoder = encoder
        self._stage: TokenStage | None = None
        self._waiting: deque[tuple[Message, Payload | None]] = deque()

    def run(self) -> None:
        while True:
            try:
                message, payload = self._waiting.popleft() if self._waiting else self._channel.receive()
            except EOFError:
                return
            if isinstance(message, Configure):
                self._stage = TokenStage(self._encoder, message.settings, self._turn)
            elif isinstance(message, Task):
                self._answer(message, payload)
            else:
                return

    def _answer(self, task: Task, payload: Payload | None) -> None:
        assert self._stage is not None
        out: Payload | None = None
        message: TokenizedMessage | Failed
        try:
            block = self._stage.run(task.unit, payload)
            out = Payload.of([block.documents, block.drops, [block.sample_text]])
            message = TokenizedMessage(task.number, block.results, block.sample)
        except SpanError as error:
            message = Failed(error.span, error.drop, str(error), "input")
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except TokenloomError as error:
            message = Failed(task.unit.spans[0], None, str(error), "worker")
        except Exception:  # noqa: BLE001 - reported whole, and it stops the job
            message = Failed(task.unit.spans[0], None, traceback.format_exc(), "worker")
        finally:
            if payload is not None:
                payload.close()
        self._channel.send(message, out)
        if out is not None:
            out.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other process encodes a very large document; the answer ends the turn."""
        self._channel.send(WantsTurn())
        while True:
            message, payload = self._channel.receive()
            if isinstance(message, TakeTurn):
                break
            self._waiting.append((message, payload))
        yield


class _Reader:
    """Reads one stream after the other, as far ahead as it has credit."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._settings: StageSettings | None = None
        self._credit = 0

    def run(self) -> None:
        while True:
            try:
                message, _ = self._channel.receive()
            except EOFError:
                return
            if isinstance(message, Configure):
                self._settings = message.settings
            elif isinstance(message, StreamRequest):
                self._credit = 0
                if not self._read(message):
                    return
            elif not isinstance(message, Credit):
                return

    def _read(self, request: StreamRequest) -> bool:
        """Send a stream's blocks; False when told to stop."""
        assert self._settings is not None
        last = Span(request.file_idx, "lines", request.start, request.start, -1, 0)
        try:
            for span, data in read_stream(request, self._settings.read, self._settings.batch_bytes):
                if not self._has_credit():
                    return False
                payload = Payload.of([data])
                self._channel.send(ReaderMessage(span), payload)
                payload.close()
                last = span
        except InputError as error:
            self._channel.send(Failed(last, None, str(error), "input"))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception:  # noqa: BLE001 - reported whole, and it stops the job
            self._channel.send(Failed(last, None, traceback.format_exc(), "worker"))
        else:
            self._channel.send(StreamEnd())
        return True

    def _has_credit(self) -> bool:
        while self._credit == 0:
            try:
                message, _ = self._channel.receive()
            except EOFError:
                return False
            if not isinstance(message, Credit):
                return False
            self._credit += message.blocks
        self._credit -= 1
        return True
