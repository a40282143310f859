"""The pipeline as a library: document by document, resumable, nothing written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep.catalog.columns import flat_values
from prep.catalog.errors import ConfigError
from prep.catalog.schema import offsets_of
from prep.pipeline.messages import Position
from prep.pipeline.runner import RunnerStart
from prep.pipeline.stream import BlockStream
from prep.resolve import resolve
from prep.sources.listing import list_sources
from prep.tokenizers.definition import TokenizerDefinition, load_definition
from prep.train import train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from prep.config import JobConfig
    from prep.pipeline.reorder import PlacedBlock


class TokenProcessor:
    """A resumable, parallel tokenization pipeline over files.

    Iterating yields the token ids of each document in order, whatever the number of processes. The state
    names the last document that was yielded; a processor that loads it continues right after.

    Args:
        files: paths, globs or fsspec URLs; they take the place of `config.source.paths`.
        config: the job; its output section is not used.
    """

    def __init__(self, files: Sequence[str], config: JobConfig) -> None:
        source = config.source.model_copy(update={"paths": list(files)})
        self._config = config.model_copy(update={"source": source})
        self._definition: TokenizerDefinition | None = None
        self._start = Position()
        self._last: tuple[PlacedBlock, int] | None = None
        self._loaded: tuple[int, int | None] = (0, None)
        self.total_docs_yielded = 0

    def __iter__(self) -> Generator[NDArray[np.generic], None, None]:
        """Yield each document's ids, read-only, of shape (num_tokens,).

        Processes end when the iterator is exhausted, closed or fails.

        Raises:
            TokenloomError: see `prep.catalog.errors`.
        """
        self._loaded, self._start, self._last = self._yielded(), self._position(), None
        files = list_sources(self._config)
        with tempfile.TemporaryDirectory(prefix="tokenloom-") as folder:
            scratch = Path(folder)
            definition = self._tokenizer(files, scratch)
            with RunnerStart(self._config) as start:
                start.load(definition)
                resolved = resolve(self._config, definition, files)
                start.expect_streams(resolved)
                runner = start.confirm(resolved.policy_ids)
                runner.configure(resolved.settings(start.backend))
                with BlockStream(resolved, runner, self._start, scratch, lambda: 0) as stream:
                    for block in stream.blocks():
                        yield from self._documents(block)

    def _documents(self, block: PlacedBlock) -> Generator[NDArray[np.generic], None, None]:
        column = block.documents.column("tokens")
        ids, offsets = flat_values(column), offsets_of(column).tolist()
        for index in range(block.documents.num_rows):
            self._last = (block, index)
            self.total_docs_yielded += 1
            yield ids[offsets[index] - offsets[0] : offsets[index + 1] - offsets[0]]

    def _tokenizer(self, files: Sequence[Any], scratch: Path) -> TokenizerDefinition:
        if self._definition is None:
            train = self._config.tokenizer.train
            if train is None:
                self._definition = load_definition(self._config.tokenizer.path or "")
            else:
                data = train_tokenizer(self._config, train, files, scratch)
                self._definition = TokenizerDefinition.from_bytes(data)
        return self._definition

    def _position(self) -> Position:
        """The place after the last document that was yielded."""
        if self._last is None:
            return self._start
        block, index = self._last
        place = block.position(index)
        if block.shuffled is not None:
            return place._replace(skip=place.skip + 1)
        return place._replace(next_row=place.next_row + 1)

    def _yielded(self) -> tuple[int, int | None]:
        """File and row of the last document that was yielded."""
        if self._last is None:
            return self._loaded
        block, index = self._last
        file, row = (block.documents.column(name)[index].as_py() for name in ("source_file", "source_row"))
        return int(file), int(row)

    @property
    def progress(self) -> int:
        """Index of the file that the last document came from."""
        return self._yielded()[0]

    def get_state(self) -> dict[str, Any]:
        """The last document yielded, as plain JSON: file, row in it, documents in all, and where to go on."""
        file, row = self._yielded()
        return {
            "yielded_file_idx": file,
            "yielded_doc_idx": row,
            "total_docs_yielded": self.total_docs_yielded,
            "position": self._position()._asdict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue after the document that a state names.

        A state without "position" is enough where documents are not shuffled; its file is then read from the
        beginning to find the row.

        Raises:
            ConfigError: the state has no position, and documents are shuffled.
        """
        self._last = None
        self.total_docs_yielded = int(state.get("total_docs_yielded") or 0)
        position, row = state.get("position"), state.get("yielded_doc_idx")
        self._loaded = (int(state.get("yielded_file_idx") or 0), row)
        if position is not None:
            self._start = Position(**position)
        elif self._config.processing.shuffle.documents != "none":
            raise ConfigError("state: field position: needed to continue where documents are shuffled")
        else:
            done = 0 if row is None else int(row) + 1
            self._start = Position(file=self._loaded[0], next_row=done)
