"""The fast backend: fastokens, for byte-level BPE and whatever else it accepts (extra `fast`)."""

from __future__ import annotations

import os

import numpy as np

from prep.catalog.errors import ConfigError, WorkerError
from prep.tokenizers.protocol import Encoded, Texts, as_strings


class FastokensEncoder:
    """Encodes with the `fastokens` library; the arguments are those of ReferenceEncoder.

    Raises:
        ConfigError: the library is not installed or does not support the tokenizer.
    """

    name = "fastokens"

    def __init__(self, encoding_json: str, *, match_control_tokens: bool = False) -> None:
        # Worker processes are the parallelism. The library reads this when it is loaded.
        os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
        try:
            import fastokens  # noqa: PLC0415 - optional
        except ImportError as error:
            raise ConfigError(
                "tokenizer.backend: fastokens is not installed; `pip install tokenloom[fast]`"
            ) from error
        try:
            self._tokenizer = fastokens.Tokenizer.from_json_str(encoding_json)
        except Exception as error:
            raise ConfigError(f"fastokens does not support this tokenizer: {error}") from error
        self._as_text = not match_control_tokens

    def encode(self, texts: Texts) -> Encoded:
        """The ids of several texts."""
        try:
            ids, offsets = self._tokenizer.encode_batch_flat(
                as_strings(texts), add_special_tokens=False, split_special_tokens=self._as_text
            )
        except Exception as error:
            raise WorkerError(f"fastokens failed: {error}") from error
        return Encoded(np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64))
