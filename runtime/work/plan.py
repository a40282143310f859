"""What a mixture will draw, before anything runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from runtime.io import Dataset
    from runtime.work.order import MixtureOrder
    from runtime.work.schedule import Schedule


@dataclass(frozen=True)
class DatasetPlan:
    """What a run draws of one dataset.

    Attributes:
        name: the dataset's.
        weight: its normalized share of the mixture's unit.
        samples, tokens: that it holds; tokens None where they are not known.
        drawn_samples: in the whole run; None where the run has no end.
        drawn_tokens: exact over whole passes, at the dataset's mean in the last one.
        passes: times through the data.
        unread_samples: that the run never reads.
        ends_the_run: whether it decides the end.
    """

    name: str
    weight: float
    samples: int
    tokens: int | None
    drawn_samples: int | None
    drawn_tokens: int | None
    passes: float | None
    unread_samples: int
    ends_the_run: bool


@dataclass(frozen=True)
class MixturePlan:
    """What a run draws, dataset by dataset.

    Attributes:
        unit: what the weights mean, "samples" or "tokens".
        total_samples: in the run; None: it has no end.
        total_tokens: None where a dataset's are not known, or without end.
        chunks: how many; None without end.
        stops: in words.
        datasets: in order.
    """

    unit: str
    total_samples: int | None
    total_tokens: int | None
    chunks: int | None
    stops: str
    datasets: tuple[DatasetPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def make_plan(order: MixtureOrder) -> MixturePlan:
    """The plan of an order."""
    schedule, total = order.schedule, order.schedule.total
    counts = [None] * len(order.datasets) if total is None else schedule.counts(total)
    shares = order.mixture.normalized_for(order.names)
    rows = tuple(
        _dataset_plan(dataset, shares[dataset.name], drawn, order.means, ends=index in schedule.stopped_by)
        for index, (dataset, drawn) in enumerate(zip(order.datasets, counts, strict=True))
    )
    tokens = [row.drawn_tokens for row in rows if row.weight]
    known = [count for count in tokens if count is not None]
    return MixturePlan(
        unit="tokens" if order.by_tokens else "samples",
        total_samples=total,
        total_tokens=sum(known) if len(known) == len(tokens) else None,
        chunks=None if total is None else -(-total // order.chunk_size),
        stops=_stops(order.names, schedule),
        datasets=rows,
    )


def _dataset_plan(
    dataset: Dataset, weight: float, drawn: int | None, means: Mapping[str, Fraction], *, ends: bool
) -> DatasetPlan:
    total, tokens = dataset.total, dataset.num_tokens()
    held = None if tokens is None else int(tokens.sum())
    if held is None and dataset.name in means:
        held = round(means[dataset.name] * total)
    return DatasetPlan(
        name=dataset.name,
        weight=weight,
        samples=total,
        tokens=held,
        drawn_samples=drawn,
        drawn_tokens=None if drawn is None or held is None else held * drawn // total if total else 0,
        passes=None if drawn is None else drawn / total if total else 0.0,
        unread_samples=max(total - drawn, 0) if drawn is not None else 0 if weight else total,
        ends_the_run=ends,
    )


def _stops(names: Sequence[str], schedule: Schedule) -> str:
    if schedule.total is None:
        return "nothing: the run has no end"
    enders = ", ".join(names[index] for index in schedule.stopped_by)
    return f"{enders} after {schedule.total:,} samples"


HEADINGS = ("dataset", "weight", "samples", "tokens", "drawn", "drawn tokens", "passes", "repeats", "unread")


def _lines(plan: MixturePlan) -> list[str]:
    table = [HEADINGS, *(_cells(row) for row in plan.datasets)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    total = "without end" if plan.total_samples is None else f"{plan.total_samples:,} samples"
    tokens = f", {plan.total_tokens:,} tokens" if plan.total_tokens is not None else ""
    chunks = f" in {plan.chunks:,} chunks" if plan.chunks is not None else ""
    return [
        f"weights count {plan.unit}",
        *lines,
        f"total: {total}{tokens}{chunks}",
        f"stopped by: {plan.stops}",
    ]


def _cells(row: DatasetPlan) -> tuple[str, ...]:
    repeats = None if row.passes is None else max(-int(-row.passes // 1) - 1, 0)
    return (
        row.name,
        f"{row.weight:.4f}",
        f"{row.samples:,}",
        _count(row.tokens),
        _count(row.drawn_samples),
        _count(row.drawn_tokens),
        "-" if row.passes is None else f"{row.passes:.3f}",
        _count(repeats),
        f"{row.unread_samples:,}",
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
