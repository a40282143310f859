"""What a mixture will draw, before anything runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from runtime.io.token_store import TokenStore

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
        token_deviation: how far its share of the tokens was from its weight at worst, at the ends of the
            chunks that were measured; None where weights count samples, or lengths are not known yet.
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
    token_deviation: float | None = None


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
        measured_chunks: from the start of the run, for the deviations.
        same_data: names of datasets that hold the same; each gives it on its own.
    """

    unit: str
    total_samples: int | None
    total_tokens: int | None
    chunks: int | None
    stops: str
    datasets: tuple[DatasetPlan, ...]
    measured_chunks: int = 0
    same_data: tuple[tuple[str, ...], ...] = ()

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
    measured, deviations = token_deviations(order, shares)
    rows = tuple(replace(row, token_deviation=deviations.get(row.name)) for row in rows)
    tokens = [row.drawn_tokens for row in rows if row.weight]
    known = [count for count in tokens if count is not None]
    return MixturePlan(
        unit="tokens" if order.by_tokens else "samples",
        total_samples=total,
        total_tokens=sum(known) if len(known) == len(tokens) else None,
        chunks=None if total is None else -(-total // order.chunk_size),
        stops=_stops(order.names, schedule),
        datasets=rows,
        measured_chunks=measured,
        same_data=_same_data(order.datasets),
    )


def _same_data(datasets: Sequence[Dataset]) -> tuple[tuple[str, ...], ...]:
    names: dict[str, list[str]] = {}
    for dataset in datasets:
        if dataset.total:
            names.setdefault(dataset.fingerprint, []).append(dataset.name)
    return tuple(tuple(each) for each in names.values() if len(each) > 1)


def token_deviations(order: MixtureOrder, shares: Mapping[str, float]) -> tuple[int, dict[str, float]]:
    """How far token shares are from the weights at the ends of the first chunks, at worst, by dataset.

    Lengths come from the shards' offsets; no token is read. Nothing is measured where weights count samples,
    or a dataset holds no token shards.

    Returns:
        How many chunks were measured, `MEASURED_CHUNKS` at most, and the deviations.
    """
    drawn = [dataset for dataset in order.datasets if shares[dataset.name]]
    if not order.by_tokens or any(dataset.kind != "tokens" for dataset in drawn):
        return 0, {}
    store = TokenStore(dict(enumerate(order.datasets)))
    sums = {dataset.name: 0 for dataset in drawn}
    worst = dict.fromkeys(sums, 0.0)
    for number in range(MEASURED_CHUNKS):
        chunk = order.chunk_at(number)
        if chunk is None:
            return number, worst
        for name, samples in chunk.arrays.items():
            sums[name] += int(store.find(samples)[1].sum())
        total = sum(sums.values())
        for name, count in sums.items():
            worst[name] = max(worst[name], abs(count / total - shares[name])) if total else 0.0
    return MEASURED_CHUNKS, worst


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


MEASURED_CHUNKS = 32
"""Of which the lengths are looked up for a plan."""

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
        *_deviation_lines(plan),
        *(f"the same data: {', '.join(names)}" for names in plan.same_data),
    ]


def _deviation_lines(plan: MixturePlan) -> list[str]:
    if not plan.measured_chunks:
        return []
    rows = [row for row in plan.datasets if row.token_deviation is not None]
    worst = ", ".join(f"{row.name} {row.token_deviation:.4f}" for row in rows)
    chunks = "the first chunk" if plan.measured_chunks == 1 else f"the first {plan.measured_chunks:,} chunks"
    return [f"token shares at the ends of {chunks} were off by at most: {worst}"]


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
