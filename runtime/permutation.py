"""Keyed bijections on [0, n): which sample stands at a position, computed and never stored.

An index is written as a cell of a rectangle of about sqrt(n) by sqrt(n). Each round adds to one coordinate
a keyed hash of the other, modulo its side, which can be undone; so all rounds together are a bijection of
the rectangle. An index that lands behind n is sent through again until it does not (cycle walking), which
leaves a bijection of [0, n). The rectangle is at most one row larger than n, so that is rare.

Source: J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains" (2002), the generalized Feistel
construction; hashes are multiplications and shifts with the constants of SplitMix64 (G. Steele, D. Lea,
C. Flood, 2014). A tiny rectangle has too few hashes to choose from; there the order is that of the hashes.

Nothing here is secret: what is wanted is an order without visible structure that no update of a library can
change. Golden tests pin it, statistical tests compare it with numpy's shuffle.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]
Word: TypeAlias = "np.uint64 | Words"

ROUNDS = 6
"""One more than sizes of 2,048 and more need to pass the tests; with 4, neighbours are visibly not random."""

SMALL = np.uint64(2048)
"""Sizes below this take as many rounds again."""

TINY = np.uint64(16)
"""Sizes up to this are permuted by sorting hashes."""

MAX_SIZE = 1 << 62
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
HALF = np.uint64(32)
ONE = np.uint64(1)
WORD_MASK = (1 << 64) - 1


def derive_key(*parts: int | str) -> int:
    """A 64-bit key from a seed, names and numbers.

    It is the xxh3-64 of each part's type, length and text, so equal parts give equal keys on every machine
    and in every version, and no parts spell others.
    """
    texts = [(type(part).__name__, str(part)) for part in parts]
    text = "".join(f"{kind}:{len(text)}:{text};" for kind, text in texts)
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def derive_keys(key: int | Word, numbers: NDArray[Any]) -> Words:
    """A key of its own for each number under a key, or under each of several: uint64, shapes broadcast."""
    base = np.uint64(key & WORD_MASK) if isinstance(key, int) else key
    values: Words = (numbers.astype(np.uint64) + ONE) * GOLDEN
    return mix64(values + base)


def mix64(values: Words) -> Words:
    """A bijection of 64-bit words without visible structure (SplitMix64's finaliser)."""
    values = (values ^ (values >> np.uint64(30))) * MIX_1
    values = (values ^ (values >> np.uint64(27))) * MIX_2
    return values ^ (values >> np.uint64(31))


class Permutation:
    """A bijection of [0, size) that a key selects, evaluated where it is asked for.

    Args:
        size: how many positions, up to 2^62; 0 allows no index.
        key: which of the bijections, any integer; only its lowest 64 bits count.
    """

    def __init__(self, size: int, key: int) -> None:
        if not 0 <= size <= MAX_SIZE:
            raise ValueError(f"size: expected 0 to 2^62, found {size}")
        self.size = size
        self._size = np.uint64(size)
        self._key = np.uint64(key & WORD_MASK)

    def permute(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """What stands at each index: int64 of the same shape.

        Raises:
            IndexError: an index outside [0, size).
        """
        return permute_each(indices, self._size, self._key)

    def inverse(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The index at which each value stands: int64 of the same shape.

        Raises:
            IndexError: a value outside [0, size).
        """
        return inverse_each(values, self._size, self._key)


def permute_each(indices: NDArray[Any], sizes: Word, keys: Word) -> NDArray[np.int64]:
    """What stands at each index of a bijection of its own.

    Args:
        indices: integers of any shape.
        sizes: of each index's bijection, or one for all: uint64, each up to 2^62.
        keys: of each index's bijection, or one for all: uint64.

    Returns:
        int64 of the indices' shape.

    Raises:
        IndexError: an index outside [0, size).
        TypeError: indices that are no integers.
    """
    return _walk(indices, sizes, keys, inverse=False)


def inverse_each(values: NDArray[Any], sizes: Word, keys: Word) -> NDArray[np.int64]:
    """The index at which each value stands in a bijection of its own; arguments as `permute_each`."""
    return _walk(values, sizes, keys, inverse=True)


def _walk(indices: NDArray[Any], sizes: Word, keys: Word, *, inverse: bool) -> NDArray[np.int64]:
    shape = np.shape(indices)
    given = np.asarray(indices)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"indices: expected integers, found {given.dtype}")
    values = given.reshape(-1).astype(np.uint64)  # a negative index becomes a large one
    if bool((values >= sizes).any()):
        raise IndexError("an index outside the bijection's range")
    if not len(values):
        return np.zeros(shape, np.int64)
    tiny = sizes <= TINY
    if np.all(tiny):
        return _ranked(values, sizes, keys, inverse=inverse).reshape(shape)
    with np.errstate(over="ignore"):
        found = _once(values, sizes, keys, inverse=inverse)
        outside = np.flatnonzero(found >= sizes)
        while len(outside):
            size = _at(sizes, outside)
            walked = _once(found[outside], size, _at(keys, outside), inverse=inverse)
            found[outside] = walked
            outside = outside[walked >= size]
    result = found.astype(np.int64)
    if np.any(tiny):
        at = np.flatnonzero(tiny)
        result[at] = _ranked(values[at], _at(sizes, at), _at(keys, at), inverse=inverse)
    return result.reshape(shape)


def _at(values: Word, places: Any) -> Word:
    return values[places] if isinstance(values, np.ndarray) else values


def _ranked(values: Words, sizes: Word, keys: Word, *, inverse: bool) -> NDArray[np.int64]:
    """The same for at most `TINY` positions: what stands at an index is the rank of its hash among all."""
    places = np.arange(int(TINY), dtype=np.uint64)
    kept, extents = (np.broadcast_to(each, values.shape)[:, None] for each in (keys, sizes))
    hashes = mix64(kept + (places + ONE) * GOLDEN) >> ONE
    hashes[places[None, :] >= extents] |= np.uint64(1 << 63)  # what is no index ranks behind
    rows, at = np.arange(len(values)), values.astype(np.int64)
    if inverse:
        return np.argsort(hashes, axis=1)[rows, at].astype(np.int64)
    return np.asarray(np.count_nonzero(hashes < hashes[rows, at][:, None], axis=1), np.int64)


def _once(values: Words, sizes: Word, keys: Word, *, inverse: bool) -> Words:
    """All rounds of the rectangle's bijection, without the walk back into [0, size)."""
    width = np.maximum(np.sqrt(sizes).astype(np.uint64), ONE)
    height = np.maximum((sizes + width - ONE) // width, ONE)
    row = values // width
    column = values - row * width
    steps: list[tuple[Any, range]] = [(slice(None), range(ROUNDS))]
    if np.any(sizes < SMALL):
        small = np.flatnonzero(np.broadcast_to(sizes < SMALL, values.shape))
        steps.append((small, range(ROUNDS, 2 * ROUNDS)))
    for places, numbers in reversed(steps) if inverse else steps:
        rows, columns = row[places], column[places]
        sides = _at(width, places), _at(height, places)
        _rounds(rows, columns, sides, _at(keys, places), numbers, inverse=inverse)
        row[places], column[places] = rows, columns
    return row * width + column


def _rounds(
    row: Words, column: Words, sides: tuple[Word, Word], keys: Word, numbers: range, *, inverse: bool
) -> None:
    """Some of the rounds, in place."""
    scratch = np.empty_like(row)
    width, height = sides
    for number in reversed(numbers) if inverse else numbers:
        half, other, side = (row, column, height) if number % 2 == 0 else (column, row, width)
        np.add(other, keys + np.uint64((number + 1) * int(GOLDEN) & WORD_MASK), out=scratch)
        scratch *= MIX_1
        scratch ^= scratch >> HALF
        scratch *= MIX_2
        scratch >>= HALF
        scratch *= side
        scratch >>= HALF  # a hash of the other coordinate in [0, side)
        if inverse:
            half -= scratch
            np.minimum(half, np.add(half, side, out=scratch), out=half)  # below 0 has wrapped to a larger one
        else:
            half += scratch
            np.minimum(half, np.subtract(half, side, out=scratch), out=half)
