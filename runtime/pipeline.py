"""What users touch: a work source, operators in order, and batches."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import nullcontext
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

from runtime.blocks import Batch, Block, Closings, Sentinel
from runtime.engine.lanes import LaneFeeder, LaneTracker, closing_view
from runtime.engine.ledger import Ledger
from runtime.engine.planner import Plan, make_plan
from runtime.io.token_store import TokenStore
from runtime.ops.base import BaseOp, OpContext, OpTraits
from runtime.ops.batch import BatchOp
from runtime.ops.fetch import FetchOp
from runtime.ops.function import FUNCTIONS, FunctionOp
from runtime.ops.map import MapBatchOp, MapOp
from runtime.ops.mixture import EnsureMixtureOp
from runtime.ops.pack import PackFlatOp
from runtime.ops.shuffle import ShuffleOp
from runtime.ops.stateful import StatefulOp
from runtime.options import RuntimeOptions
from runtime.runners.inline import InlineRunner, Stage
from runtime.runners.threads import Prefetcher
from runtime.runners.user import UserStage
from runtime.training.batches import SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from runtime.blocks import Item
    from runtime.work import WorkSource


class Pipeline:
    """Samples of a work source on their way to batches.

    Args:
        work_source: decides which sample comes when.
    """

    def __init__(self, work_source: WorkSource) -> None:
        self._source = work_source
        self._ops: list[BaseOp] = []
        self._options = RuntimeOptions()
        self._run: Run | None = None

    @classmethod
    def from_config(cls, path: Path | str) -> Pipeline:
        """The pipeline that a YAML file describes; see `runtime.config`.

        Raises:
            ConfigError: the file cannot be read, or a field is unknown or has an unusable value.
            IntegrityError: a catalog is missing or damaged.
        """
        from runtime.config import load_pipeline  # noqa: PLC0415 - it needs this class

        return load_pipeline(path).pipeline(str(path))

    def shuffle(self, buffer_size: int = 8192, **arguments: Any) -> Self:
        """Shuffle the records of each lane; see `ShuffleOp`."""
        return self._add(ShuffleOp(buffer_size, **arguments))

    def ensure_mixture(self, **arguments: Any) -> Self:
        """Keep every prefix of a lane near the target mixture; see `EnsureMixtureOp`."""
        return self._add(EnsureMixtureOp(**arguments))

    def map_transform(
        self, fn: Callable[[Any], Any], drop_none: bool = True, *, parallelism: int | None = None
    ) -> Self:
        """Apply a function to the payload of each record; None drops it. See `MapOp`."""
        return self._add(MapOp(fn, drop_none=drop_none, parallelism=parallelism))

    def map_batch(
        self,
        fn: Callable[[list[Any]], Sequence[Any]],
        drop_none: bool = True,
        *,
        parallelism: int | None = None,
    ) -> Self:
        """Apply a function to the payloads of some records at a time; None drops one. See `MapBatchOp`."""
        return self._add(MapBatchOp(fn, drop_none=drop_none, parallelism=parallelism))

    def stateful_transform(self, name: str, **arguments: Any) -> Self:
        """Show each record to a state of its lane, which decides what goes on when; see `StatefulOp`."""
        return self._add(StatefulOp(name, **arguments))

    def add_op(
        self,
        op: BaseOp | str,
        *,
        name: str | None = None,
        process_many: Callable[[Sequence[Any]], Any] | None = None,
        preserves_cursor_order: bool | None = None,
        **arguments: Any,
    ) -> Self:
        """Add an operator: an instance, which may be given a name, or a name with a function.

        Args:
            op: an operator, or the name of one.
            name: of an instance, in messages and plans.
            process_many: gets a list of records of one lane and returns a list of records; see `FunctionOp`.
            preserves_cursor_order: records leave in the order in which they came; a wrong True loses data on
                resume.
            arguments: `accumulator`, `process_one`, `validation_samples` as `FunctionOp` has them, and fields
                of `OpTraits`; `indexable` is False unless it is said.

        Raises:
            ValueError: a name without its function, or without saying whether it keeps the order of records;
                an instance with a function.
        """
        if not isinstance(op, str):
            if process_many is not None or preserves_cursor_order is not None or arguments:
                raise ValueError(f"add_op: {op.name!r}: an operator says these things itself; give its name")
            op.name = name or op.name
            return self._add(op)
        if process_many is None or preserves_cursor_order is None:
            raise ValueError(f"add_op: {op!r}: give process_many and preserves_cursor_order")
        own = {key: arguments.pop(key) for key in FUNCTIONS if key in arguments}
        traits = OpTraits(preserves_cursor_order, **{"indexable": False, **arguments})
        return self._add(FunctionOp(op, process_many, traits, **own))

    def pack_flat(self, max_length: int, **arguments: Any) -> Self:
        """Pack documents into rows; see `PackFlatOp`."""
        return self._add(PackFlatOp(max_length, **arguments))

    def batch(self, microbatch_size: int, *, drop_last: bool = True) -> Self:
        """Group rows into batches; see `BatchOp`."""
        return self._add(BatchOp(microbatch_size, drop_last=drop_last))

    def options(self, **changes: Any) -> Self:
        """Change how the pipeline runs; see `RuntimeOptions`.

        Raises:
            ValueError: there is no such option, or its value cannot be.
        """
        known = [each.name for each in fields(RuntimeOptions)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"options: there is no {name!r}{hint} Known are {', '.join(known)}")
        self._options = replace(self._options, **changes)
        self._options.owned_lanes()
        return self

    def _add(self, op: BaseOp) -> Self:
        if self._run is not None:
            raise RuntimeError(f"{op.name}: the pipeline runs already; add operators before the first batch")
        if any(isinstance(each, BatchOp) for each in self._ops):
            raise ValueError(f"{op.name}: comes behind batch(); put it before")
        self._ops.append(op)
        return self

    def __iter__(self) -> Iterator[SampleBatch]:
        """The batches that are still to come; a loop that was left is taken up where it was."""
        if self._run is None:
            self._run = Run(self._source, self._ops, self._options)
            self._finalizer = weakref.finalize(self, self._run.close)
        yield from self._run

    @property
    def components(self) -> dict[int, str]:
        """The names of the mixture's components, by the id that samples carry."""
        return {number: name for name, number in self._source.component_ids().items()}

    def explain(self) -> Plan:
        """What will run, and why; printed, it is a text of some lines."""
        return make_plan([FetchOp(), *self._ops], self._options)

    def inflight_summary(self) -> dict[int, dict[str, int]]:
        """By lane that this rank owns: chunks in flight, their base offsets still open, batches delivered."""
        if self._run is None:
            return {}
        return {
            number: {
                "chunks": len(tracker.inflight),
                "open": tracker.open,
                "delivered_batches": tracker.delivered_batches,
            }
            for number, tracker in self._run.trackers.items()
        }

    def ledger(self) -> Ledger:
        """Where all that this rank took from the work source has gone."""
        return Ledger() if self._run is None else self._run.ledger()

    def close(self) -> None:
        """End the run and let go of all it holds."""
        if self._run is not None:
            self._finalizer()
            self._run = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Run:
    """One run of a pipeline over the lanes that this rank owns."""

    def __init__(self, source: WorkSource, ops: list[BaseOp], options: RuntimeOptions) -> None:
        self._store = TokenStore(source.datasets_by_id)
        self.trackers: dict[int, LaneTracker] = {}
        components = source.component_ids()
        services = {
            "tokens": self._store,
            "components": components,
            "targets": lambda lane, chunk: self.trackers[lane].target(chunk, components),
        }
        self._ops = [FetchOp(), *ops]
        plan = make_plan(self._ops, options)
        contexts = [OpContext(services, {"operator": op.name}) for op in self._ops]
        for op, context in zip(self._ops, contexts, strict=True):
            op.setup(context)
        stages = [_stage(op, context) for op, context in zip(self._ops, contexts, strict=True)]
        self._runner = InlineRunner(stages)
        config = options.mixture_config or source.read_config
        self._turns: deque[LaneRun] = deque()
        for lane in plan.owned_lanes:
            tracker = self.trackers[lane] = LaneTracker(plan.monotone)
            clone = source.clone_for_lane(lane, options.lanes)
            feeder = LaneFeeder(lane, clone, tracker, config=config, every=plan.epoch_chunks)
            self._turns.append(LaneRun(lane, feeder, tracker, self._runner))
        self._prefetcher = (
            Prefetcher(list(self._turns), options.prefetch_batches) if options.runner == "threads" else None
        )

    def __iter__(self) -> Iterator[SampleBatch]:
        lanes = self._turns
        while lanes:
            batch = self._next_batch(lanes[0])
            if batch is None:
                lanes.popleft()
            else:
                lanes.rotate(-1)
                yield SampleBatch(batch, self._store)

    def _next_batch(self, lane: LaneRun) -> Batch | None:
        if self._prefetcher is not None:
            return self._prefetcher.next_batch(lane)
        while (batch := lane.take()) is None and not lane.ended:
            items, lane.ended = lane.advance()
            lane.ready.extend(items)
        return batch

    def ledger(self) -> Ledger:
        """Where all that was taken has gone."""
        with self._prefetcher.paused() if self._prefetcher is not None else nullcontext():
            ledger = Ledger()
            self._runner.count(ledger)
            for tracker in self.trackers.values():
                ledger.documents.delivered += tracker.delivered_documents
                ledger.tokens.delivered += tracker.delivered_tokens
            for lane in self._turns:
                documents, tokens = lane.waiting()
                ledger.documents.buffered += documents
                ledger.tokens.buffered += tokens
        return ledger

    def close(self) -> None:
        """End what runs and tear down operators; what was delivered stays valid."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        for op in self._ops:
            op.teardown()
        self._store.close()
        self._turns.clear()


def _stage(op: BaseOp, context: OpContext) -> Stage:
    return Stage(op, context) if op.takes_blocks else UserStage(op, context)


class LaneRun:
    """One lane of a run.

    Attributes:
        ready: items behind the last operator.
        ended: the work source has no more for this lane.
    """

    def __init__(self, lane: int, feeder: LaneFeeder, tracker: LaneTracker, runner: InlineRunner) -> None:
        self._lane, self._feeder, self._tracker, self._runner = lane, feeder, tracker, runner
        self.ready: deque[Item] = deque()
        self.ended = False

    def advance(self) -> tuple[list[Item], bool]:
        """Feed one item to the operators; what comes out, and whether that was the last."""
        item = self._feeder.next()
        if item is not None:
            return list(self._runner.feed(item)), False
        return list(self._runner.finish(self._lane)), True

    def take(self) -> Batch | None:
        """The next batch that is ready; it counts as delivered. None: there is none."""
        while self.ready:
            item = self.ready.popleft()
            if isinstance(item, Batch):
                self._tracker.deliver(item)
                return item
            self._pass(item)
        return None

    def waiting(self) -> tuple[int, int]:
        """Documents that end in batches behind the last operator, and tokens."""
        batches = [item for item in self.ready if isinstance(item, Batch)]
        sizes = [closing_view(batch.block).size(batch.first, batch.stop) for batch in batches]
        return sum(documents for documents, _ in sizes), sum(tokens for _, tokens in sizes)

    def _pass(self, item: Item) -> None:
        if isinstance(item, Closings):
            self._tracker.close(item)
        elif isinstance(item, Sentinel):
            self._tracker.end_epoch(item)
        else:
            assert isinstance(item, Block)
            raise TypeError("the pipeline ends without batch()")
