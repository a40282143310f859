"""The reference backend: Hugging Face `tokenizers`."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from prep.catalog.errors import ConfigError, WorkerError
from prep.tokenizers.protocol import Encoded, Texts, as_strings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Encoding, Tokenizer

    from prep.tokenizers.definition import TokenizerDefinition

CALL_CHARACTERS = 256 << 10
"""Text a call; the library needs more than a hundred bytes for each of them."""


class ReferenceEncoder:
    """Encodes with the `tokenizers` library.

    Args:
        encoding_json: a tokenizer.json without padding, truncation and post-processor.
        match_control_tokens: whether text that spells a control token becomes that token.

    Raises:
        ConfigError: the library refuses the tokenizer.
    """

    name = "tokenizers"

    def __init__(self, encoding_json: str, *, match_control_tokens: bool = False) -> None:
        # Worker processes are the parallelism; threads of the library would fight with them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import tokenizers  # noqa: PLC0415 - loaded where it is used

        try:
            self._tokenizer: Tokenizer = tokenizers.Tokenizer.from_str(encoding_json)
        except Exception as error:
            raise ConfigError(f"tokenizer.path: the tokenizers library refuses this file: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.match_control_tokens(match=match_control_tokens)

    def match_control_tokens(self, *, match: bool) -> None:
        """Set whether text that spells a control token becomes that token."""
        self._tokenizer.encode_special_tokens = not match

    def refuse_other_ids(self, definition: TokenizerDefinition) -> None:
        """Compare the added tokens of the file with those that the library loaded.

        Raises:
            ConfigError: the library gives one another id than the file says.
        """
        for token in definition.added_tokens:
            found = self._tokenizer.token_to_id(token["content"])
            if found != token["id"]:
                raise ConfigError(
                    f"{definition.origin}: added token {token['content']!r} has id {token['id']} in the "
                    f"file, and {found} once it is loaded (the library numbers added tokens behind the "
                    "vocabulary); mend the file"
                )

    def encode(self, texts: Texts) -> Encoded:
        """The ids of several texts."""
        counts: list[int] = []
        pieces: list[np.ndarray] = [np.zeros(0, np.uint32)]
        for part in _parts(as_strings(texts)):
            ids = [encoding.ids for encoding in self._encode_batch(part)]
            counts += map(len, ids)
            pieces.append(np.fromiter(chain.from_iterable(ids), np.uint32, sum(map(len, ids))))
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return Encoded(np.concatenate(pieces), offsets)

    def _encode_batch(self, texts: list[str]) -> list[Encoding]:
        try:
            return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:
            raise WorkerError(f"the tokenizers library failed: {error}") from error

    def gives_back(self, text: str, ids: list[int]) -> bool:
        """Whether decoding the ids gives the text, so that nothing was normalised away."""
        return self.decode(ids) == text

    def decode(self, ids: list[int]) -> str:
        """The text of ids, control tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Slices of about CALL_CHARACTERS, or of one text."""
    start, size = 0, 0
    for stop, text in enumerate(texts):
        if size and size + len(text) > CALL_CHARACTERS:
            yield texts[start:stop]
            start, size = stop, 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]
