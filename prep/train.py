"""A tokenizer made of a job's own sources, before the job begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prep.pipeline.channel import Payload
from prep.pipeline.downloader import Downloader
from prep.pipeline.messages import Position, Unit
from prep.pipeline.plan import Feed
from prep.pipeline.reader import read_span, read_stream
from prep.readers.block import ReadOptions
from prep.tokenizers.train import train_bpe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from prep.config import JobConfig, TrainConfig
    from prep.sources.listing import SourceFile

WAIT_SECONDS = 0.05


def train_tokenizer(
    config: JobConfig, train: TrainConfig, files: Sequence[SourceFile], scratch: Path
) -> bytes:
    """Train on the sources from the first file on; equal sources give an equal tokenizer.json.

    Records that cannot be read are passed over here; the job itself reports them.
    """
    return train_bpe(_texts(config, train.max_bytes, files, scratch), train.vocab_size, train.eos_token)


def _texts(config: JobConfig, max_bytes: int, files: Sequence[SourceFile], scratch: Path) -> Iterator[str]:
    options = ReadOptions(
        text_field=config.source.text_field,
        text_mode=config.source.text_mode,
        on_bad_record="skip",
        on_bad_text="skip",
        max_record_bytes=config.processing.max_record_bytes,
    )
    limit, storage = config.processing.download_bytes, config.source.storage_options
    downloader = Downloader(files, 0, scratch, limit, storage)
    try:
        feed = Feed(files, Position(), options, config.processing.batch_bytes, downloader)
        seen, passed = 0, 0
        for file_idx, text in _read(feed, options, config.processing.batch_bytes):
            yield text
            seen += len(text.encode())
            if seen >= max_bytes:
                return
            if passed < file_idx:
                passed = file_idx
                downloader.release_before(passed)
    finally:
        downloader.close()


def _read(feed: Feed, options: ReadOptions, batch_bytes: int) -> Iterator[tuple[int, str]]:
    """Each text with the index of its file."""
    while not feed.finished:
        work = feed.next()
        if work is None:
            feed.wait(WAIT_SECONDS)
        elif isinstance(work, Unit):
            for span, file in zip(work.spans, work.files, strict=True):
                for text in read_span(span, file, None, options).texts:
                    yield span.file, text
        else:
            for span, data in read_stream(work, options, batch_bytes):
                payload = Payload.of([data])
                for text in read_span(span, work.file, payload, options).texts:
                    yield span.file, text
                payload.close()
