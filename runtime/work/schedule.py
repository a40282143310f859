"""How many samples each dataset has given after N, and where the run ends.

A run is a row of segments. In each, the shares of the datasets are those of one `SplitTree`; a segment
ends where a dataset has given all it has and the others take over, where a new stage begins, or where the run
ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runtime.work.split import SplitTree

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Ends:
    """When datasets and the run are over.

    Attributes:
        limits: how many samples each dataset can give; None: any number.
        redistributes: whether the others take over when a dataset has given all; otherwise the run ends
            before the first sample that it lacks.
        floors: how many samples each dataset has to give; right after the last of them the run ends. None:
            there is no such end.
    """

    limits: tuple[int | None, ...]
    redistributes: tuple[bool, ...]
    floors: tuple[int, ...] | None


class Stage(NamedTuple):
    """From a place on, other weights hold.

    Attributes:
        start: in the global order.
        weights: integers by dataset.
    """

    start: int
    weights: tuple[int, ...]


class Segment(NamedTuple):
    """Where one set of shares holds.

    Attributes:
        start: its first place in the global order.
        given: samples of each dataset before it.
        tree: the shares.
    """

    start: int
    given: tuple[int, ...]
    tree: SplitTree


class Schedule:
    """The counts of each dataset at any place of the global order.

    Args:
        stages: in order; the first starts at 0.
        ends: of the datasets and the run.

    Attributes:
        total: samples in the run; None: without end.
        stopped_by: datasets that decide its end.
    """

    def __init__(self, stages: Sequence[Stage], ends: Ends) -> None:
        self._ends = ends
        self._limits = np.array([np.inf if limit is None else limit for limit in ends.limits], np.float64)
        self.segments: list[Segment] = []
        self.total: int | None = None
        self.stopped_by: list[int] = []
        given = tuple(0 for _ in ends.limits)
        for stage, following in zip(stages, [*stages[1:], None], strict=True):
            until = following.start if following else None
            given = self._run_stage(stage, given, until)
        self._starts = [segment.start for segment in self.segments]

    def counts(self, place: int) -> list[int]:
        """Samples of each dataset before a place: they sum to it."""
        segment = self.segments[max(bisect_right(self._starts, place) - 1, 0)]
        shares = segment.tree.counts(place - segment.start)
        return [before + share for before, share in zip(segment.given, shares, strict=True)]

    def edges(self, first: int, stop: int) -> list[int]:
        """Where the stretch from `first` to `stop` begins, changes its shares, and ends."""
        inside = self._starts[bisect_right(self._starts, first) : bisect_left(self._starts, stop)]
        return [first, *sorted(set(inside)), stop]

    def _run_stage(self, stage: Stage, given: tuple[int, ...], until: int | None) -> tuple[int, ...]:
        """Append a stage's segments; returns what was given at `until`."""
        start, weights = stage.start, list(stage.weights)
        floor = self._floor(start, given, weights) if until is None else None
        while any(weights):
            tree = SplitTree(weights)
            self.segments.append(Segment(start, given, tree))
            exhausted, draws = self._first_lack(tree, given)
            if until is not None and (draws is None or start + draws >= until):
                return _after(given, tree, until - start)
            if floor is not None or draws is None:
                self.total, self.stopped_by = floor if floor is not None else (None, [])
                return given
            start, given = start + draws, _after(given, tree, draws)
            if not self._ends.redistributes[exhausted]:
                self.total, self.stopped_by = start, [exhausted]
                return given
            weights[exhausted] = 0
        last = [index for index, weight in enumerate(stage.weights) if weight]
        self.total, self.stopped_by = start, last
        return given

    def _first_lack(self, tree: SplitTree, given: Sequence[int]) -> tuple[int, int | None]:
        """Which dataset first has to give a sample that it lacks, and after how many draws."""
        found, draws = -1, None
        for index in self._nearest(tree, given):
            limit = self._ends.limits[index]
            assert limit is not None
            wanted = limit - given[index] + 1
            if draws is None or tree.count(index, draws) >= wanted:
                found, draws = index, tree.draws_until(index, wanted) - 1
            if draws == 0:
                break
        return found, draws

    def _nearest(self, tree: SplitTree, given: Sequence[int]) -> list[int]:
        """Datasets of which one is the first to lack a sample; by floats, so with some margin."""
        weights = np.array(tree.weights, np.float64)
        wanted = self._limits - np.array(given, np.float64) + 1
        with np.errstate(divide="ignore", invalid="ignore"):  # by the weights that are 0
            earliest, latest = (wanted - tree.slack) / weights, (wanted + tree.slack) / weights
        can_lack = np.isfinite(self._limits) & (weights > 0)
        first = latest[can_lack].min(initial=np.inf) * (1 + 1e-9)
        return np.flatnonzero(can_lack & (earliest <= first)).tolist()

    def _floor(
        self, start: int, given: Sequence[int], weights: Sequence[int]
    ) -> tuple[int, list[int]] | None:
        """Where the last dataset has given its floor, and which datasets that are."""
        if self._ends.floors is None:
            return None
        tree = SplitTree(weights)
        reached = {
            index: start + tree.draws_until(index, floor - given[index])
            for index, floor in enumerate(self._ends.floors)
            if weights[index]
        }
        last = max(reached.values())
        return last, [index for index, place in reached.items() if place == last]


def _after(given: Sequence[int], tree: SplitTree, draws: int) -> tuple[int, ...]:
    return tuple(map(add, given, tree.counts(draws))) if draws else tuple(given)
