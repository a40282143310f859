"""How far the tokens of a mixture are from their shares while a pass is under way.

Shares by tokens are exact over whole passes. Inside a pass documents are longer or shorter than the mean; how
much that matters is measured on the lengths of the very documents that the first chunks hold. Lengths are
those of Arrow's lists; no token is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runtime.io.token_store import TokenStore
    from runtime.work.order import MixtureOrder

MOST_SAMPLES = 1 << 20
"""Documents whose lengths are looked up."""

MOST_SHARDS = 1 << 12
"""Shards that are opened for it."""


@dataclass(frozen=True)
class Deviation:
    """Of the shares of tokens from the weights, by dataset id.

    Attributes:
        chunks: how many were looked at, from the first on.
        so_far: the largest difference at a chunk's end, of all tokens up to there: float64 of shape
            (datasets,).
        inside: the largest difference of the tokens of a chunk alone.
    """

    chunks: int
    so_far: NDArray[np.float64]
    inside: NDArray[np.float64]


def measure_deviation(order: MixtureOrder) -> Deviation | None:
    """The deviation over the first chunks, until one of the limits above or until shares change.

    None where the weights mean samples, where a dataset that is drawn is no catalog of token shards on local
    disk, or where the first chunk is beyond the limits.
    """
    shares = np.array(list(order.mixture.normalized_for(order.names).values()))
    drawn = [dataset for dataset, share in zip(order.datasets, shares, strict=True) if share]
    if not order.by_tokens or not all(dataset.kind == "tokens" and dataset.is_local for dataset in drawn):
        return None
    from runtime.io.token_store import TokenStore  # noqa: PLC0415 - needs what reads shards

    store = TokenStore(dict(enumerate(order.datasets)))
    try:
        tokens = _tokens_by_chunk(order, store)
    finally:
        store.close()
    if not len(tokens):
        return None
    return Deviation(len(tokens), _largest(tokens.cumsum(axis=0), shares), _largest(tokens, shares))


def _largest(tokens: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.abs(tokens / tokens.sum(axis=1, keepdims=True) - shares).max(axis=0)
    return found


def _tokens_by_chunk(order: MixtureOrder, store: TokenStore) -> NDArray[np.int64]:
    """Tokens of each dataset in each chunk: int64 of shape (chunks, datasets)."""
    changes = [segment.start for segment in order.schedule.segments[1:]]
    stop = min([MOST_SAMPLES, *changes]) // order.chunk_size
    opened: set[tuple[int, int]] = set()
    rows: list[NDArray[np.int64]] = []
    for number in range(stop):
        chunk = order.chunk_at(number)
        if chunk is None:
            break
        counts = np.zeros(len(order.datasets), np.int64)
        for ids in chunk.arrays.values():
            opened |= {(int(ids[0, 0]), shard) for shard in np.unique(ids[:, 1]).tolist()}
            if len(opened) > MOST_SHARDS:
                return np.array(rows, np.int64)
            counts[ids[0, 0]] = store.find(ids)[1].sum()
        if not counts.sum():
            break
        rows.append(counts)
    return np.array(rows, np.int64)
