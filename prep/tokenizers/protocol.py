"""What a tokenizer backend is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class Encoded(NamedTuple):
    """Ids of several texts, flat.

    Attributes:
        ids: uint32 of shape (offsets[-1],).
        offsets: int64 of shape (texts + 1,); text i has ids[offsets[i]:offsets[i + 1]].
    """

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]


Texts: TypeAlias = "pa.Array | list[str]"
"""Texts as an Arrow string array without nulls, or as Python strings."""


def as_strings(texts: Texts) -> list[str]:
    """What the libraries behind the backends take."""
    return texts if isinstance(texts, list) else list(texts.to_pylist())


class Encoder(Protocol):
    """Encodes texts; equal texts give equal ids in every backend, call and process.

    No backend adds BOS or EOS, pads, truncates or applies a post-processor.
    """

    @property
    def name(self) -> str:
        """The backend's name in the configuration."""

    def encode(self, texts: Texts) -> Encoded:
        """The ids of several texts."""
