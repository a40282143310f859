"""Every stage in this process, one after the other (`workers: 0`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from prep.catalog.errors import ConfigError, InputError, WorkerError
from prep.pipeline.channel import Payload
from prep.pipeline.messages import Failed, Ready, Span, Unit
from prep.pipeline.reader import read_stream
from prep.pipeline.tokenizer import SpanError, TokenStage
from prep.tokenizers.backends import make_encoder
from prep.tokenizers.probes import probe_ids

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from prep.pipeline.messages import StreamRequest
    from prep.pipeline.plan import Feed
    from prep.pipeline.settings import EncoderSettings, StageSettings
    from prep.pipeline.tokenizer import TokenBlock
    from prep.tokenizers.protocol import Encoder

POLL_SECONDS = 0.02


def load_encoder(settings: EncoderSettings, encoding_json: str) -> tuple[Encoder | None, Ready]:
    """Make an encoder, and say what it gives to the probes or why it cannot be used."""
    try:
        encoder = make_encoder(
            settings.backend, encoding_json, match_control_tokens=settings.match_control_tokens
        )
        return encoder, Ready(probe_ids(encoder, settings.probes))
    except (ConfigError, WorkerError) as error:
        return None, Ready([], str(error))


class InlineRunner:
    """The interface of `Supervisor` without processes."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._ready = Ready([], "no encoder was loaded")
        self._settings: StageSettings | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._encoder = None

    def expect_streams(self, count: int) -> None:
        """Nothing to start."""

    def load(self, encoder: EncoderSettings, encoding_json: str) -> None:
        """Load the backend."""
        self._encoder, self._ready = load_encoder(encoder, encoding_json)

    def ready(self) -> Ready:
        """What the backend gives to the probes."""
        return self._ready

    def configure(self, settings: StageSettings) -> None:
        self._settings = settings

    def results(self, feed: Feed) -> Generator[TokenBlock | Failed, None, None]:
        assert self._encoder is not None
        assert self._settings is not None
        stage = TokenStage(self._encoder, self._settings)
        while not feed.finished:
            work = feed.next()
            if work is None:
                feed.wait(POLL_SECONDS)
            elif isinstance(work, Unit):
                yield _run(stage, work, None)
            else:
                yield from self._run_stream(stage, work, self._settings)

    def _run_stream(
        self, stage: TokenStage, request: StreamRequest, settings: StageSettings
    ) -> Iterator[TokenBlock | Failed]:
        last = Span(request.file_idx, "lines", request.start, request.start, -1, 0)
        try:
            for span, data in read_stream(request, settings.read, settings.batch_bytes):
                payload = Payload.of([data])
                try:
                    result = _run(stage, Unit((span,), (request.file,)), payload)
                finally:
                    payload.close()
                yield result
                last = span
        except InputError as error:
            yield Failed(last, None, str(error), "input")


def _run(stage: TokenStage, unit: Unit, payload: Payload | None) -> TokenBlock | Failed:
    try:
        return stage.run(unit, payload)
    except SpanError as error:
        return Failed(error.span, error.drop, str(error), "input")
    except WorkerError as error:
        return Failed(unit.spans[0], None, str(error), "worker")
