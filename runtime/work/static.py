"""A mixture with fixed weights whose every chunk is computed from its number."""

from __future__ import annotations

import copy
import math
import operator
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from prep.catalog.errors import RefusedError
from runtime.work.lanes import ASSIGNMENTS, Lanes
from runtime.work.mixture import MixtureSpec, exact, integer_weights, plain
from runtime.work.options import UNSET, OneOrEach, Unset, each, resolve_ends
from runtime.work.order import MixtureOrder, MixtureStage, drawn_in
from runtime.work.plan import MixturePlan, make_plan
from runtime.work.source import WorkSource
from runtime.work.state import read_state, refuse_differences, refuse_missing_lanes
from runtime.work.tokens import known_means, measured_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runtime.io import Dataset
    from runtime.types import SampleId
    from runtime.work.chunk import WorkChunk
    from runtime.work.schedule import Schedule
    from runtime.work.tokens import CountingSpec, TokenEstimation

STATE_VERSION = 1
AUTO_BLOCK_SHARDS = 8
"""`shuffle_block_size="auto"` is so many times the largest shard of all datasets."""


class StaticMixtureWorkSource(WorkSource):
    """Chunks of samples of several datasets in exact proportions.

    Args:
        datasets: with distinct names; a sample's dataset_id is the place in this list.
        mixture: weights by dataset name.
        chunk_size: samples a chunk; only the run's last may be smaller.
        seed: of every order.
        shuffle_shards: the order of the shards, in each pass.
        shuffle_within_shard: the order of the rows of each shard.
        shuffle_block_size: positions in blocks of this many change places, across shards but not passes;
            "auto": 8 times the largest shard of all datasets; "global": each dataset as a whole; None: not at
            all.
        exhausted_policy: what happens when a dataset has given all: the run ends ("stop"), the next pass
            begins ("repeat"), or the others take over its share ("redistribute"); one, or one a dataset.
        reshuffle_on_repeat: another order in each pass (the default) or the same; one, or one a dataset.
        max_repeats: passes after the first of datasets that repeat; one, or one a dataset.
        stop_after_passes: the run ends right after every dataset has given so many passes; all repeat until
            then. 1 if neither policy nor repeats are given. One, or one a dataset, 0 where left out.
        lane_assignment: which lane gets a chunk; see `Lanes`.
        token_estimation: the weights mean tokens, not samples.

    Raises:
        ValueError: an argument has a wrong value, or two contradict each other; it names them.
    """

    def __init__(  # noqa: PLR0917 - the arguments that users of this kind of loader know
        self,
        datasets: Sequence[Dataset],
        mixture: MixtureSpec | Mapping[str, float],
        chunk_size: int = 16_384,
        seed: int = 0,
        shuffle_shards: bool = True,
        shuffle_within_shard: bool = False,
        shuffle_block_size: int | str | None = None,
        exhausted_policy: OneOrEach[str] | None = None,
        reshuffle_on_repeat: OneOrEach[bool] | Unset = UNSET,
        max_repeats: OneOrEach[int | None] | None = None,
        stop_after_passes: OneOrEach[int] | Unset | None = UNSET,
        lane_assignment: str = "permute",
        token_estimation: TokenEstimation | None = None,
    ) -> None:
        names = [dataset.name for dataset in datasets]
        _refuse_duplicates(names)
        spec = mixture if isinstance(mixture, MixtureSpec) else MixtureSpec(dict(mixture))
        spec.validate_for(names)
        if lane_assignment not in ASSIGNMENTS:
            raise ValueError(f"lane_assignment: expected {', '.join(ASSIGNMENTS)}, found {lane_assignment!r}")
        weights = integer_weights(spec.exact_for(names))
        ends, ends_of = resolve_ends(datasets, weights, exhausted_policy, max_repeats, stop_after_passes)
        reshuffle = True if isinstance(reshuffle_on_repeat, Unset) else reshuffle_on_repeat
        self._order = MixtureOrder(
            datasets=tuple(datasets),
            stages=(MixtureStage(0, {name: plain(spec.weights[name]) for name in names}),),
            chunk_size=_integer("chunk_size", chunk_size, 1),
            seed=_integer("seed", seed, None),
            shuffle_shards=_flag("shuffle_shards", shuffle_shards),
            shuffle_within_shard=_flag("shuffle_within_shard", shuffle_within_shard),
            block=_block_size(shuffle_block_size, datasets),
            reshuffle=tuple(
                _flag(f"reshuffle_on_repeat: {name!r}", value)
                for name, value in zip(
                    names, each("reshuffle_on_repeat", reshuffle, names, default=True), strict=True
                )
            ),
            ends=ends,
            ends_of=tuple(ends_of),
            by_tokens=token_estimation is not None,
            means={} if token_estimation is None else known_means(datasets, spec, token_estimation),
        )
        self._measurable = frozenset(names) - set(self._order.means)
        self._has_auto_block = shuffle_block_size == "auto"
        self._estimation = token_estimation
        self._assignment = lane_assignment
        self._lanes, self._lane, self._turn = Lanes(1, lane_assignment, self._order.seed), 0, 0
        self._dealers: dict[int, Lanes] = {}
        self._last: WorkChunk | None = None

    # --- what there is

    @property
    def datasets_by_id(self) -> Mapping[int, Dataset]:
        """The datasets, by the id that their samples carry."""
        return dict(enumerate(self._order.datasets))

    @property
    def dataset_ids(self) -> Mapping[str, int]:
        """Dataset name to id."""
        return {name: index for index, name in enumerate(self._order.names)}

    def component_ids(self) -> Mapping[str, int]:
        """Component name to id: those of the datasets."""
        return self.dataset_ids

    def chunk_size_hint(self) -> int | None:
        """Samples a chunk; the last may be smaller."""
        return self._order.chunk_size

    @property
    def total_samples(self) -> int | float:
        """Samples in the run, exactly; infinite where nothing ends it."""
        total = self.schedule.total
        return math.inf if total is None else total

    @property
    def schedule(self) -> Schedule:
        """Counts by dataset at any place, and the end.

        Raises:
            RuntimeError: the weights mean tokens and have not been measured yet.
        """
        return self._order.schedule

    def plan(self) -> MixturePlan:
        """What the run will draw of each dataset, and what ends it."""
        return make_plan(self._order)

    # --- tokens

    @property
    def requires_token_priming(self) -> bool:
        """Whether a dataset's tokens a sample are still to be measured."""
        return bool(self._order.unmeasured)

    def prime(
        self,
        *,
        io_options: Any = None,
        counting_spec: CountingSpec | None = None,
        pre_tokenize_replay: Callable[[Any], Any] | None = None,
        mp_context: Any = None,
    ) -> None:
        """Measure the tokens a sample that are not known; nothing where all are.

        The same samples are measured for the same seed, datasets and settings.

        Args:
            io_options: not needed for data on local disk.
            counting_spec: the tokenizer, where `token_estimation.measure` is not given.
            pre_tokenize_replay: applied to each payload before it is counted.
            mp_context: not needed, as measuring starts no processes.

        Raises:
            ValueError: there is no way to count the tokens of a dataset; it is named.
        """
        del io_options, mp_context
        if self._estimation is None:
            return
        measured = {
            dataset.name: exact(
                measured_mean(dataset, self._estimation, self._order.seed, counting_spec, pre_tokenize_replay)
            )
            for dataset in self._order.unmeasured
        }
        if measured:
            self._order = replace(self._order, means={**self._order.means, **measured})

    # --- chunks

    def next_chunk(self) -> WorkChunk | None:
        """The next chunk of this lane; None at the end, and ever after."""
        chunk = self.chunk_at(self._lanes.chunk_of(self._lane, self._turn))
        if chunk is not None:
            self._turn += 1
        return chunk

    def chunk_at(self, number: int) -> WorkChunk | None:
        """The chunk with a number in the global order, whosever lane it is; None behind the end."""
        return self._order.chunk_at(number)

    def supports_indexing(self) -> bool:
        """Always."""
        return True

    def sample_id_at(self, index: int) -> SampleId:
        """The sample at a place of the global order, before lanes, read with `read_config`.

        Raises:
            IndexError: the run has no such place.
        """
        if not 0 <= index < self.total_samples:
            raise IndexError(f"index: expected 0 to {self.total_samples - 1:,}, found {index}")
        number, place = divmod(_integer("index", index, 0), self._order.chunk_size)
        chunk = self._last
        if chunk is None or chunk.number != number:
            chunk = self._last = self.chunk_at(number)
        assert chunk is not None
        return chunk.sample_at(place, replace(self.read_config, precompute=True))[0]

    # --- lanes and state

    def clone_for_lane(self, lane_id: int, canonical_replicas: int) -> StaticMixtureWorkSource:
        """This source as one of several lanes sees it; they share all tables.

        Raises:
            ValueError: there is no such lane, or this source is itself a lane or has begun.
        """
        lane_id = _integer("lane_id", lane_id, None)
        canonical_replicas = _integer("canonical_replicas", canonical_replicas, 1)
        if not 0 <= lane_id < canonical_replicas:
            raise ValueError(f"lane_id: expected 0 to {canonical_replicas - 1}, found {lane_id}")
        if self._turn or self._lanes.replicas > 1:
            raise ValueError("clone_for_lane: expected a source that is no lane and has given no chunk")
        lane = copy.copy(self)
        if canonical_replicas not in self._dealers:
            self._dealers[canonical_replicas] = Lanes(canonical_replicas, self._assignment, self._order.seed)
        lane._lanes = self._dealers[canonical_replicas]  # noqa: SLF001
        lane._lane = lane_id  # noqa: SLF001
        return lane

    def state_dict(self) -> dict[str, Any]:
        """Which chunk is next and what decides the order: plain JSON."""
        return {**self._envelope(), "turn": self._turn, "order": self._order.describe()}

    def _envelope(self) -> dict[str, Any]:
        """What the fields of a state that say whose it is have to be."""
        return {
            "version": STATE_VERSION,
            "lane": self._lane,
            "lanes": self._lanes.replicas,
            "lane_assignment": self._assignment,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; all or nothing.

        Raises:
            RefusedError: the state belongs to another order or lane; the message names what differs.
        """
        turn, saved, stages = read_state(state, self._envelope())
        order = self._adopting(saved, stages)
        if len(order.stages) == 1 and len(stages) > 1 and stages[-1].weights == order.stages[0].weights:
            order = order.with_stages(stages)
        refuse_differences(saved, order.describe(len(stages)))
        newest = self._lanes.chunk_of(self._lane, turn - 1) if turn else -1
        begun = order.stages[len(stages) :]
        if begun and newest >= begun[0].first_chunk:
            raise RefusedError(
                f"turn: the stage was begun at chunk {begun[0].first_chunk}, but lane {self._lane} had chunk "
                f"{newest} by now: begin it anew with the states of all lanes"
            )
        self._order, self._turn, self._last = order, turn, None

    def begin_stage(self, states: Iterable[Mapping[str, Any]]) -> int:
        """Change the mixture of a run on purpose, or add datasets to it.

        This source is made with the new mixture; its datasets are those of the run and perhaps more behind
        them. Chunks that a lane has had stay as they were; from the next chunk on the new weights hold. Each
        dataset goes on where it was. Afterwards `load_state_dict` takes the states of the lanes.

        Args:
            states: of all lanes of the run.

        Returns:
            The first chunk of the new stage.

        Raises:
            RefusedError: anything else differs from the run, a lane's state is missing, or the run has ended.
        """
        given = list(states)
        replicas = refuse_missing_lanes(given)
        own = {**self._envelope(), "lanes": replicas}
        read = [read_state(state, {**own, "lane": state["lane"]}) for state in given]
        _, saved, stages = read[0]
        known = set(self._order.names)
        before = self._adopting(saved, stages)
        if all(known.issuperset(stage.weights) for stage in stages):
            before = before.with_stages(stages)
        for _, order, _ in read:
            refuse_differences(order, before.describe(len(stages)))
        dealt = Lanes(replicas, self._assignment, before.seed)
        had = [
            dealt.chunk_of(state["lane"], turn - 1)
            for state, (turn, _, _) in zip(given, read, strict=True)
            if turn
        ]
        first = max(had, default=-1) + 1
        total = before.schedule.total
        if total is not None and first * before.chunk_size > total:
            raise RefusedError(f"the run has ended: all its {total:,} samples were given")
        self._order = before.with_stages([*stages, MixtureStage(first, self._order.stages[-1].weights)])
        return first

    def _adopting(self, saved: Mapping[str, Any], stages: Sequence[MixtureStage]) -> MixtureOrder:
        """The order with what the run has resolved: the size of "auto" blocks, measured tokens a sample."""
        order, block = self._order, saved.get("shuffle_block_size")
        if self._has_auto_block and isinstance(block, int) and block != order.block:
            order = replace(order, block=block)
        means = dict(order.means)
        for name in drawn_in(stages) & self._measurable:
            means.pop(name, None)
            if "tokens_per_sample" in saved["datasets"][name]:
                means[name] = _fraction(name, saved["datasets"][name]["tokens_per_sample"])
        return replace(order, means=means) if means != order.means else order


def _fraction(name: str, text: Any) -> Fraction:
    try:
        found = Fraction(text)
    except (TypeError, ValueError, ZeroDivisionError):
        found = Fraction(0)
    if found <= 0:
        raise RefusedError(f"state: order: datasets.{name}.tokens_per_sample: damaged: {text!r}")
    return found


def _refuse_duplicates(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"datasets: two are called {twice[0]!r}; orders and states go by names")


def _flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{argument}: expected true or false, found {value!r}")  # noqa: TRY004 - as other mistakes
    return bool(value)


def _integer(argument: str, value: Any, least: int | None) -> int:
    """An integer of any type, as a plain one."""
    wanted = "an integer" if least is None else f"an integer of {least} or more"
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ValueError(f"{argument}: expected {wanted}, found {value!r}")  # noqa: TRY004 - as other mistakes
    if least is not None and operator.index(value) < least:
        raise ValueError(f"{argument}: expected {wanted}, found {value!r}")
    return operator.index(value)


def _block_size(value: int | str | None, datasets: Sequence[Dataset]) -> int | str | None:
    """A size, "global", or None."""
    if value == "auto":
        return max(1, AUTO_BLOCK_SHARDS * max((dataset.max_count for dataset in datasets), default=0))
    if value is None or value == "global":
        return value
    if isinstance(value, str):
        raise ValueError(  # noqa: TRY004 - as other mistakes
            f"shuffle_block_size: expected an integer, 'auto', 'global' or None, found {value!r}"
        )
    return _integer("shuffle_block_size", value, 1)
