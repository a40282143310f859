"""The tokens of shards where they lie: places in mapped files, copied only when a batch is made.

An uncompressed shard is mapped as a whole. Arrow's offsets are read from the mapped pages where they stand,
so a shard costs a few numbers a record batch and no table a document. A compressed shard is decoded into
memory of its own, which is bounded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from prep.catalog.errors import InputError, IntegrityError
from runtime.blocks import REF_SHIFT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from runtime.io import Dataset

    Ints: TypeAlias = NDArray[np.int64]

ID_TYPES = (pa.uint16(), pa.uint32())
DAMAGE = (OSError, ValueError, LookupError, pa.ArrowException)

MAX_MAPPED = 4096
"""Shards that are mapped at a time; a mapping holds no descriptor."""

MAX_DECODED_BYTES = 1 << 30
"""Memory of compressed shards that are decoded at a time."""

PAYLOAD_PLACES = 1 << 22
"""References from this place on are of tokens that operators made; see `TokenStore.refer`."""


class TokenColumn:
    """The tokens of one shard.

    Attributes:
        tokens: uint16 or uint32 of shape (elements,): the mapped file as a whole, or decoded tokens.
        view: the same as a memoryview, whose slices cost least.
        private_bytes: memory that only this needs.
        address: of the first token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with pa.memory_map(str(path)) as source:
                self._buffer = source.read_buffer(source.size())
            self._read(path)
        except DAMAGE as error:
            raise IntegrityError(f"{path}: cannot be read as a token shard: {error}") from error
        self.view = memoryview(self.tokens)  # type: ignore[arg-type] # an array is a buffer
        self.address = _data(self.tokens)

    def _read(self, path: Path) -> None:
        with pa.ipc.open_file(pa.BufferReader(self._buffer)) as reader:
            column = reader.schema.get_field_index("tokens")
            if column < 0:
                raise IntegrityError(f"{path}: field tokens: missing: this is no token shard")
            kind = reader.schema.field(column).type
            if not pa.types.is_list(kind) or kind.value_type not in ID_TYPES:
                allowed = " or ".join(map(str, ID_TYPES))
                raise IntegrityError(f"{path}: field tokens: expected lists of {allowed}, found {kind}")
            lists = [reader.get_batch(number).column(column) for number in range(reader.num_record_batches)]
        self._dtype = np.dtype(kind.value_type.to_pandas_dtype())
        self._rows = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
        if all(self._is_mapped(each) for each in lists):
            self._map(lists)
        else:
            self._decode(lists)

    def _is_mapped(self, column: pa.Array) -> bool:
        return all(
            self._buffer.address <= buffer.address < self._buffer.address + self._buffer.size
            for buffer in (column.buffers()[1], column.values.buffers()[1])
            if buffer is not None and buffer.size
        )

    def _map(self, lists: Sequence[pa.Array]) -> None:
        width, size = self._dtype.itemsize, self._buffer.size
        self.private_bytes = 0
        self.tokens = np.frombuffer(self._buffer, self._dtype, size // width)
        self._offsets = np.frombuffer(self._buffer, np.int32, size // 4)
        base = self._buffer.address
        offsets = [_bytes_into(each.buffers()[1], base) // 4 + each.offset for each in lists]
        values = [_bytes_into(each.values.buffers()[1], base) // width for each in lists]
        self._offset_starts, self._value_starts = np.array(offsets, np.int64), np.array(values, np.int64)

    def _decode(self, lists: Sequence[pa.Array]) -> None:
        self.tokens = np.concatenate([each.flatten().to_numpy() for each in lists]).astype(self._dtype)
        self.tokens.flags.writeable = False
        counts = [each.value_lengths().to_numpy() for each in lists]
        self._offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        self._offset_starts, self._value_starts = self._rows[:-1].copy(), np.zeros(len(lists), np.int64)
        self.private_bytes = self.tokens.nbytes + self._offsets.nbytes

    def find(self, rows: Ints) -> tuple[Ints, Ints]:
        """The first token and the number of tokens of each row."""
        batches = np.searchsorted(self._rows, rows, side="right") - 1
        entries = self._offset_starts[batches] + (rows - self._rows[batches])
        starts = self._offsets[entries].astype(np.int64)
        counts = self._offsets[entries + 1] - starts
        firsts = self._value_starts[batches] + starts
        if len(rows) and (int(counts.min()) < 0 or int((firsts + counts).max()) > len(self.tokens)):
            raise IntegrityError(
                f"{self._path}: field tokens: offsets point outside of the file: it is damaged"
            )
        return firsts, counts


class HeldTokens:
    """Tokens that lie in no shard; they can be referred to as long as this object exists.

    Attributes:
        tokens: uint16 or uint32 of shape (tokens,); it cannot be written to.
        view: the same as a memoryview.
        place: of a reference.
        address: of the first token.
    """

    __slots__ = ("__weakref__", "address", "place", "tokens", "view")

    def __init__(self, tokens: NDArray[Any], place: int) -> None:
        self.tokens = tokens.copy()
        self.tokens.flags.writeable = False
        self.view = memoryview(self.tokens)  # type: ignore[arg-type] # an array is a buffer
        self.place = place
        self.address = _data(self.tokens)


class TokenStore:
    """The token shards of several datasets, opened when they are needed.

    Args:
        datasets: by the id that samples carry; those that hold no token shards cannot be asked for.

    Attributes:
        datasets: these.
    """

    def __init__(self, datasets: Mapping[int, Dataset]) -> None:
        self.datasets = datasets
        self._first_place: dict[int, int] = {}
        places = 0
        for number, dataset in datasets.items():
            if dataset.kind == "tokens":
                self._first_place[number] = places
                places += dataset.shard_count
        self._first_places = np.zeros(max(self._first_place, default=0) + 1, np.int64)  # the same, by id
        self._first_places[list(self._first_place)] = list(self._first_place.values())
        if places > PAYLOAD_PLACES:
            raise InputError(f"token shards: expected {PAYLOAD_PLACES:,} at most, found {places:,}")
        self._open: OrderedDict[int, TokenColumn] = OrderedDict()
        self._decoded_bytes = 0
        self._place_of: dict[int, int] = {}  # by the identity of an open shard's array
        self._held: WeakValueDictionary[int, HeldTokens] = WeakValueDictionary()  # by place
        self._held_of: WeakValueDictionary[int, HeldTokens] = WeakValueDictionary()  # by identity
        self._next_held = 0
        self._lock = threading.Lock()  # operators may run in another thread than the loop

    def holds(self, dataset: int) -> bool:
        """Whether a dataset's samples are token shards."""
        return dataset in self._first_place

    def find(self, sample: Ints) -> tuple[Ints, Ints]:
        """References to the tokens of samples of token shards, and their lengths.

        Args:
            sample: int64 of shape (samples, 3).
        """
        places = self._first_places[sample[:, 0]] + sample[:, 1]
        refs, lengths = np.empty(len(sample), np.int64), np.empty(len(sample), np.int64)
        if not len(sample):
            return refs, lengths
        changes = np.flatnonzero(places[1:] != places[:-1]) + 1
        order = None
        if len(changes) > len(places) // 8:  # no runs to speak of: group equal places
            order = np.argsort(places, kind="stable")
            grouped = places[order]
            changes = np.flatnonzero(grouped[1:] != grouped[:-1]) + 1
        edges = [0, *changes.tolist(), len(places)]
        for first, stop in pairwise(edges):
            which = slice(first, stop) if order is None else order[first:stop]
            place = int(places[first] if order is None else places[order[first]])
            with self._lock:
                column = self._column(place)
            starts, counts = column.find(sample[which, 2])
            refs[which] = starts + (place << REF_SHIFT)
            lengths[which] = counts
        return refs, lengths

    def column(self, place: int) -> TokenColumn | HeldTokens:
        """The tokens at a place: those of a shard, or such that are held."""
        if place >= PAYLOAD_PLACES:
            return self._held[place]
        with self._lock:
            return self._column(place)

    def refer(self, ids: NDArray[Any]) -> tuple[int, HeldTokens | None]:
        """A reference to ids, and what has to be kept for it to stay valid.

        Ids that are a view of an open shard's tokens are referred to where they lie, and nothing has to be
        kept. Others are copied, once: what refers to the copy already gives the same again.

        Args:
            ids: uint16 or uint32 of one dimension.
        """
        owner = ids if ids.base is None else ids.base
        with self._lock:
            place = self._place_of.get(id(owner))
            held = self._held_of.get(id(owner))
            if held is not None and _is_part(ids, held.tokens):
                return (held.place << REF_SHIFT) + (_data(ids) - held.address) // ids.itemsize, held
            if place is not None and _is_part(ids, (column := self._open[place]).tokens):
                return (place << REF_SHIFT) + (_data(ids) - column.address) // ids.itemsize, None
            return self._hold(ids)

    def _hold(self, ids: NDArray[Any]) -> tuple[int, HeldTokens]:
        while PAYLOAD_PLACES + self._next_held in self._held:
            self._next_held = (self._next_held + 1) % PAYLOAD_PLACES
        held = HeldTokens(ids, PAYLOAD_PLACES + self._next_held)
        self._next_held = (self._next_held + 1) % PAYLOAD_PLACES
        self._held[held.place] = self._held_of[id(held.tokens)] = held
        return held.place << REF_SHIFT, held

    def _column(self, place: int) -> TokenColumn:
        column = self._open.get(place)
        if column is None:
            column = self._open[place] = self._load(place)
            self._place_of[id(column.tokens)] = place
            self._decoded_bytes += column.private_bytes
            while len(self._open) > MAX_MAPPED or (
                self._decoded_bytes > MAX_DECODED_BYTES and len(self._open) > 1
            ):
                _, oldest = self._open.popitem(last=False)
                self._decoded_bytes -= oldest.private_bytes
                del self._place_of[id(oldest.tokens)]
        else:
            self._open.move_to_end(place)
        return column

    def _load(self, place: int) -> TokenColumn:
        number, first = max(
            (item for item in self._first_place.items() if item[1] <= place),
            key=lambda item: (item[1], item[0]),
        )
        return TokenColumn(self.datasets[number].shard_file(place - first))

    def close(self) -> None:
        """Let go of all shards; arrays that were handed out stay valid."""
        with self._lock:
            self._open.clear()
            self._place_of.clear()


def _is_part(ids: NDArray[Any], tokens: NDArray[Any]) -> bool:
    """Whether a view of an array shows consecutive tokens of it."""
    return ids is tokens or (ids.dtype == tokens.dtype and ids.strides == tokens.strides)


def _data(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _bytes_into(buffer: pa.Buffer | None, base: int) -> int:
    """Where a buffer begins behind an address; an empty one may lie anywhere, and 0 does as well."""
    return buffer.address - base if buffer is not None and buffer.size else 0
