"""The contract of accumulators as a test that any accumulator can be put to.

    def test_my_accumulator() -> None:
        assert_accumulator(MyAccumulator)

Records of two lanes are pushed in turns, one lane is flushed in between, and what comes out is compared with
accumulators that saw a single lane.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from runtime.blocks import Batch, Block, Closings, Pieces
from runtime.records import items_of
from runtime.types import SampleMeta, SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runtime.ops.accumulators import Accumulator

Offset: TypeAlias = tuple[int, int]
LENGTHS = (5, 0, 12, 3, 40, 1, 7, 9, 16, 2, 31)
"""Tokens of the records that are made."""
LANES = (0, 1)
PUSHES = 6
"""Pushes a lane before and after the flush."""


class Problem(NamedTuple):
    """A promise that was not kept.

    Attributes:
        code: which, one of the ACC_ codes.
        message: what was seen.
    """

    code: str
    message: str


def assert_accumulator(
    factory: Callable[[], Accumulator], *, takes_blocks: bool = False, payload: Any = None
) -> None:
    """Fail if an accumulator does not keep the contract; see `check_accumulator`.

    Raises:
        AssertionError: it names every problem with its code.
    """
    problems = check_accumulator(factory, takes_blocks=takes_blocks, payload=payload)
    if problems:
        raise AssertionError("\n".join(f"{code}: {message}" for code, message in problems))


def check_accumulator(
    factory: Callable[[], Accumulator], *, takes_blocks: bool = False, payload: Any = None
) -> list[Problem]:
    """The problems of an accumulator, in the order in which they were seen.

    Args:
        factory: makes a new one each time.
        takes_blocks: it takes `Block`s, as built-in ones do, instead of lists of records.
        payload: of each record; None: a dict with `tokens`.
    """
    trial = _Trial(factory, takes_blocks, payload)
    try:
        trial.run()
    except _StopError as stop:
        trial.problems.append(stop.problem)
    return list(dict.fromkeys(trial.problems))


class _StopError(Exception):
    """Nothing more can be tried."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(code, message)


class Row(NamedTuple):
    """What is compared of a record.

    Attributes:
        lane: of it.
        pieces: (chunk, offset, first token, tokens, closes) of each, and child numbers.
    """

    lane: int
    pieces: tuple[Any, ...]

    @property
    def closes(self) -> list[Offset]:
        """The base offsets that it closes."""
        return [(piece[0], piece[1]) for piece in self.pieces if piece[4]]


Group: TypeAlias = tuple[Row, ...]


class _Trial:
    """One accumulator's way through the test."""

    def __init__(self, factory: Callable[[], Accumulator], takes_blocks: bool, payload: Any) -> None:
        self._factory, self._takes_blocks, self._payload = factory, takes_blocks, payload
        self.problems: list[Problem] = []

    def run(self) -> None:
        before, after = self._elements(0), self._elements(1)
        acc = self._made()
        if self._pending(acc, None):
            self._note("ACC_HAS_PENDING_LIES", "a new one says that it holds something")
        groups = [group for elems in _in_turns(before) for group in self._pushed(acc, elems)]
        first = self._flush_lane(acc, LANES[0])
        restarted = [group for elems in after[LANES[0]] for group in self._pushed(acc, elems)]
        going_on = [group for elems in after[LANES[1]] for group in self._pushed(acc, elems)]
        rest = self._flush_all(acc)
        self._compare_restarted(restarted, rest, after[LANES[0]])
        self._compare_other(groups + going_on + rest, first, [*before[LANES[1]], *after[LANES[1]]])
        self._check_groups(groups + first + restarted + going_on + rest)
        self._check_kept(acc, [groups, first, restarted, going_on, rest])

    def _elements(self, half: int) -> dict[int, list[Any]]:
        """By lane what is pushed; the chunks of a lane are its own."""
        return {
            lane: [self._push(lane, lane * 1000 + half * PUSHES + number) for number in range(PUSHES)]
            for lane in LANES
        }

    def _push(self, lane: int, chunk: int) -> Any:
        size = len(LENGTHS) - chunk % 3
        lengths = np.array([LENGTHS[(place + chunk) % len(LENGTHS)] for place in range(size)], np.int64)
        if self._takes_blocks:
            return _block(lane, chunk, lengths)
        return [
            SampleRecord(
                SampleMeta((0, 0, place), lane, chunk, place, {place % 2: 1}),
                {"tokens": np.arange(length)} if self._payload is None else self._payload,
            )
            for place, length in enumerate(lengths.tolist())
        ]

    def _made(self) -> Accumulator:
        try:
            return self._factory()
        except Exception as error:
            raise _StopError("ACC_FACTORY_RAISED", repr(error)) from error

    def _pushed(self, acc: Accumulator, elems: Any) -> list[Group]:
        try:
            return _groups(acc.push_many(elems))
        except Exception as error:
            raise _StopError("ACC_PUSH_OR_FLUSH_RAISED", f"push_many: {error!r}") from error

    def _flush_all(self, acc: Accumulator) -> list[Group]:
        was_pending = self._pending(acc, None)
        lost = _lost(acc)
        try:
            groups = _groups(acc.flush())
        except Exception as error:
            raise _StopError("ACC_PUSH_OR_FLUSH_RAISED", f"flush: {error!r}") from error
        self._check_pending("flush()", was_pending, bool(groups) or _lost(acc) > lost)
        if self._pending(acc, None):
            self._note("ACC_HAS_PENDING_LIES", "after flush() it says that it holds something")
        return groups

    def _flush_lane(self, acc: Accumulator, lane: int) -> list[Group]:
        was_pending = self._pending(acc, lane)
        lost = _lost(acc)
        try:
            groups = _groups(acc.flush(reset=True, lane_id=lane))
        except TypeError as error:
            raise _StopError(
                "ACC_NO_PER_LANE_FLUSH", f"flush(reset=True, lane_id={lane}): {error}"
            ) from error
        except Exception as error:
            raise _StopError("ACC_RESET_RAISED", f"flush(reset=True, lane_id={lane}): {error!r}") from error
        self._check_pending(f"flush of lane {lane}", was_pending, bool(groups) or _lost(acc) > lost)
        if any(row.lane != lane for group in groups for row in group):
            message = f"flush of lane {lane} gave records of other lanes"
            self._note("ACC_FLUSH_LEAKS_OTHER_LANES", message)
        if self._pending(acc, lane):
            message = f"lane {lane} still holds something after its flush"
            self._note("ACC_PER_LANE_FLUSH_NOT_DRAINED", message)
        return groups

    def _check_pending(self, what: str, was_pending: bool, gave: bool) -> None:
        if was_pending != gave:
            said = "something" if was_pending else "nothing"
            message = f"has_pending_data said that it holds {said}; {what} gave {'some' if gave else 'none'}"
            self._note("ACC_HAS_PENDING_LIES", message)

    def _compare_restarted(self, restarted: list[Group], rest: list[Group], pushes: list[Any]) -> None:
        lane = LANES[0]
        expected = self._alone(pushes)
        if restarted + _of_lane(rest, lane) != expected:
            self._note(
                "ACC_RESET_NOT_FRESH", f"lane {lane} gave something else after its flush than a new one"
            )

    def _compare_other(self, groups: list[Group], flushed: list[Group], pushes: list[Any]) -> None:
        lane = LANES[1]
        if _of_lane(flushed, lane) or _of_lane(groups, lane) != self._alone(pushes):
            message = f"lane {lane} gave something else than if lane {LANES[0]} had not been flushed"
            self._note("ACC_FLUSH_LEAKS_OTHER_LANES", message)

    def _alone(self, pushes: list[Any]) -> list[Group]:
        """What a lane gives that has an accumulator of its own."""
        acc = self._made()
        groups = [group for elems in pushes for group in self._pushed(acc, elems)]
        return groups + _groups(acc.flush())

    def _check_groups(self, groups: list[Group]) -> None:
        for group in groups:
            if len({row.lane for row in group}) > 1:
                self._note("ACC_BATCH_NOT_LANE_PURE", "a group holds records of several lanes")
            for row in group:
                if any(offset[0] // 1000 != row.lane for offset in row.closes):
                    self._note(
                        "ACC_MUTATES_LANE_ID", f"a record came out in lane {row.lane} that was in another"
                    )

    def _check_kept(self, acc: Accumulator, parts: list[list[Group]]) -> None:
        pushed = Counter(
            offset
            for half in (0, 1)
            for pushes in self._elements(half).values()
            for elems in pushes
            for row in _rows(elems)
            for offset in row.closes
        )
        given = Counter(
            offset for groups in parts for group in groups for row in group for offset in row.closes
        )
        missing, more = (pushed - given).total(), (given - pushed).total()
        if missing != _lost(acc) or more:
            message = f"of {pushed.total()} records {missing} did not come out and {more} too many did"
            self._note("ACC_FLUSH_LOSES_SAMPLES", f"{message}; counted as lost are {_lost(acc)}")

    def _pending(self, acc: Accumulator, lane: int | None) -> bool:
        try:
            return bool(acc.has_pending_data(lane))
        except Exception as error:
            raise _StopError("ACC_PUSH_OR_FLUSH_RAISED", f"has_pending_data: {error!r}") from error

    def _note(self, code: str, message: str) -> None:
        self.problems.append(Problem(code, message))


def _in_turns(pushes: dict[int, list[Any]]) -> Iterable[Any]:
    return (elems for turn in zip(*pushes.values(), strict=True) for elems in turn)


def _of_lane(groups: list[Group], lane: int) -> list[Group]:
    return [group for group in groups if group and group[0].lane == lane]


def _lost(acc: Accumulator) -> int:
    """Records that an accumulator counts as left out."""
    return sum(documents for documents, _ in getattr(acc, "lost", {}).values())


def _groups(found: Sequence[Any]) -> list[Group]:
    return [rows for rows in (tuple(_rows(group)) for group in found) if rows]


def _rows(group: Any) -> list[Row]:
    """What is compared of a group: a block, a batch, closings, or a list of records."""
    if isinstance(group, Closings):
        offsets = zip(group.chunk.tolist(), group.offset.tolist(), strict=True)
        return [Row(group.lane, ((*offset, 0, 0, True, ()),)) for offset in offsets]
    if isinstance(group, Batch):
        return _rows(group.block.slice(group.first, group.stop))
    if not isinstance(group, Block):
        return [row for item in items_of(list(group), None) for row in _block_rows(item)]
    return _block_rows(group)


def _block_rows(item: Any) -> list[Row]:
    if not isinstance(item, Block):
        return _rows(item)
    pieces = item.pieces
    columns = [column.tolist() for column in (pieces.chunk, pieces.offset, pieces.start, pieces.length)]
    lineages = [()] * len(pieces) if pieces.lineage is None else pieces.lineage.tolist()
    entries = list(zip(*columns, pieces.closes.tolist(), lineages, strict=True))
    edges = range(len(item) + 1) if item.rows is None else item.rows.tolist()
    return [Row(item.lane, tuple(entries[edges[row] : edges[row + 1]])) for row in range(len(item))]


def _block(lane: int, chunk: int, lengths: Any) -> Block:
    size = len(lengths)
    return Block(
        lane,
        Pieces(
            np.full(size, chunk, np.int64),
            np.arange(size),
            np.stack([np.zeros(size, np.int64), np.zeros(size, np.int64), np.arange(size)], axis=1),
            (np.arange(size) % 2).astype(np.int32),
            np.ones(size, np.bool_),
            np.zeros(size, np.int64),
            lengths,
            np.cumsum(lengths) - lengths,
        ),
    )
