"""The stages chained: from source files and a position to placed blocks of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from prep.pipeline.check import SampleCheck
from prep.pipeline.downloader import Downloader
from prep.pipeline.plan import Feed
from prep.pipeline.reorder import Reorder
from prep.pipeline.shuffle import BlockShuffle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from prep.pipeline.messages import Position
    from prep.pipeline.reorder import PlacedBlock
    from prep.pipeline.runner import Runner
    from prep.resolve import Resolved


class BlockStream:
    """The document stream of a job from a position on, in blocks; a context manager.

    Args:
        resolved: the job.
        runner: runs the reading and tokenizing stages, and is configured.
        start: where to begin.
        scratch: folder for downloads.
        shard: tells the index of the shard that is being written; None: nothing is checked.
    """

    def __init__(
        self,
        resolved: Resolved,
        runner: Runner,
        start: Position,
        scratch: Path,
        shard: Callable[[], int] | None = None,
    ) -> None:
        config = resolved.config
        self._resolved = resolved
        self._start = start
        self._runner = runner
        self.names = [file.name for file in resolved.files]
        self._downloader = Downloader(
            resolved.files,
            start.file,
            scratch,
            config.processing.download_bytes,
            config.source.storage_options,
        )
        self._generators: list[Generator[Any, None, None]] = []
        self._reorder = Reorder(self.names, resolved.layout, start)
        self.check: SampleCheck | None = None
        if shard is not None:
            self.check = SampleCheck(resolved.reference, resolved.boundaries, self.names, shard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Generators that an exception has left hold what they were working on until they are closed.
        for generator in reversed(self._generators):
            generator.close()
        self._downloader.close()

    @property
    def reached(self) -> tuple[int, int]:
        """The file that is being read, and about how many of its bytes are done."""
        return self._reorder.reached

    def blocks(self) -> Generator[PlacedBlock, None, None]:
        """Blocks in the order in which documents are written."""
        resolved, processing = self._resolved, self._resolved.config.processing
        feed = Feed(resolved.files, self._start, resolved.read, processing.batch_bytes, self._downloader)
        results = self._runner.results(feed)
        placed = self._reorder.place(results)
        blocks = self._release(placed)
        self._generators = [results, placed, blocks]
        if self.check is not None:
            blocks = self.check.watch(blocks)
            self._generators.append(blocks)
        shuffle = processing.shuffle
        if shuffle.documents == "block":
            stage = BlockShuffle(
                resolved.layout.schema(),
                shuffle.seed,
                shuffle.block_documents,
                shuffle.block_bytes,
                self._start,
            )
            blocks = stage.shuffle(blocks)
            self._generators.append(blocks)
        return blocks

    def _release(self, blocks: Generator[PlacedBlock, None, None]) -> Generator[PlacedBlock, None, None]:
        """Give up the downloads that the stream has passed."""
        passed = self._start.file
        for block in blocks:
            yield block
            if passed < self.reached[0]:
                passed = self.reached[0]
                self._downloader.release_before(passed)
