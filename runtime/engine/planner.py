"""From operators to a plan that says what will run, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.ops.batch import BatchOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.ops.base import BaseOp
    from runtime.options import RuntimeOptions


@dataclass(frozen=True)
class StagePlan:
    """One operator.

    Attributes:
        name: the operator's.
        preserves_order: records leave in the order in which they came.
        at_sentinel: what its accumulator does at the end of an epoch.
    """

    name: str
    preserves_order: bool
    at_sentinel: str


@dataclass(frozen=True)
class Plan:
    """What runs.

    Attributes:
        stages: in order.
        runner: where they run.
        monotone: chunks are forgotten as soon as something of a later one is delivered; otherwise by epochs.
        changes_order: the operators because of which it is not.
        epoch_chunks: chunks between two sentinels of a lane; 0: there are none.
        lanes, owned_lanes: all, and those of this rank in the order of delivery.
    """

    stages: tuple[StagePlan, ...]
    runner: str
    monotone: bool
    changes_order: tuple[str, ...]
    epoch_chunks: int
    lanes: int
    owned_lanes: tuple[int, ...]

    def __str__(self) -> str:
        why = (
            "every operator keeps the order of records"
            if self.monotone
            else f"{', '.join(self.changes_order)} change{'s' if len(self.changes_order) == 1 else ''} it"
        )
        where = {"inline": "in the training loop", "threads": "in a thread ahead of the training loop"}
        lines = [f"runner: {self.runner}, {where[self.runner]}", "stages:"]
        for stage in self.stages:
            order = "keeps order" if stage.preserves_order else "changes order"
            lines.append(f"  {stage.name}: {order}; {stage.at_sentinel}")
        eviction = "as soon as a later chunk is delivered from" if self.monotone else "epoch by epoch"
        lines.append(f"chunks are forgotten {eviction}: {why}")
        if self.epoch_chunks:
            lines.append(f"boundary: flush, every {self.epoch_chunks} chunks of a lane")
        owned = ", ".join(map(str, self.owned_lanes))
        lines.append(f"lanes: {self.lanes}, of which this rank delivers {owned} in turn")
        return "\n".join(lines)


def make_plan(ops: Sequence[BaseOp], options: RuntimeOptions) -> Plan:
    """The plan of operators under some options."""
    stages = tuple(
        StagePlan(op.name, op.traits().preserves_cursor_order, "waits" if waits(op) else "flushes")
        for op in ops
    )
    changing = tuple(stage.name for stage in stages if not stage.preserves_order)
    return Plan(
        stages,
        options.runner,
        not changing,
        changing,
        options.flush_every_k_chunks if changing else 0,
        options.lanes,
        tuple(options.owned_lanes()),
    )


def waits(op: BaseOp) -> bool:
    """Whether a sentinel waits in front of an operator: only an incomplete batch cannot be given."""
    return isinstance(op, BatchOp) and op.drop_last
