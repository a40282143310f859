"""What a mixture will draw, before anything runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from runtime.work.deviation import measure_deviation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.io import Dataset
    from runtime.work.deviation import Deviation
    from runtime.work.order import MixtureOrder, MixtureStage


@dataclass(frozen=True)
class DatasetPlan:
    """What a run draws of one dataset.

    Attributes:
        name: the dataset's.
        weight: its share of the mixture's unit; all sum to 1.
        samples, tokens: that it holds; tokens None where they are not known.
        tokens_are_exact: whether they are counted; otherwise they are estimated from bytes.
        drawn_samples: in the whole run; None where the run has no end.
        drawn_tokens: exact over whole passes; those of the last, partial one at the dataset's mean.
        token_share: of the tokens drawn of all datasets; None where one's are not known.
        passes: times through the data.
        repeats: passes that are begun after the first.
        unread_samples, unread_tokens: that the run never reads; tokens at the dataset's mean.
        ends_the_run: whether it decides the end.
        shuffle_window: samples that change places among each other, apart from whole shards; 1: none.
        token_deviation: of its share of the tokens from its weight, at the ends of the first chunks, of all
            tokens up to there; None where it was not measured.
        chunk_token_deviation: the same of the tokens of one chunk alone.
    """

    name: str
    weight: float
    samples: int
    tokens: int | None
    tokens_are_exact: bool
    drawn_samples: int | None
    drawn_tokens: int | None
    token_share: float | None
    passes: float | None
    repeats: int | None
    unread_samples: int
    unread_tokens: int | None
    ends_the_run: bool
    shuffle_window: int
    token_deviation: float | None
    chunk_token_deviation: float | None


@dataclass(frozen=True)
class MixturePlan:
    """What a run draws, dataset by dataset. As text it is the table that `tokenloom mixture plan` prints.

    Attributes:
        unit: what the weights mean, "samples" or "tokens".
        total_samples: in the run; None: it has no end.
        total_tokens: None where a dataset's are not known, or without end.
        chunk_size: samples a chunk.
        chunks: how many; None without end.
        shuffled: what is shuffled, in words.
        stops: what ends the run, in words.
        measured_chunks: over how many chunks deviations were measured; None: they were not.
        stages: weights and from which chunk on they hold.
        notes: what may be unexpected, in words.
        datasets: in order.
    """

    unit: str
    total_samples: int | None
    total_tokens: int | None
    chunk_size: int
    chunks: int | None
    shuffled: str
    stops: str
    measured_chunks: int | None
    stages: tuple[MixtureStage, ...]
    notes: tuple[str, ...]
    datasets: tuple[DatasetPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def make_plan(order: MixtureOrder) -> MixturePlan:
    """The plan of an order."""
    total = order.schedule.total
    counts = [None] * len(order.datasets) if total is None else order.schedule.counts(total)
    weights = order.mixture.normalized_for(order.names).values()
    deviation = measure_deviation(order)
    rows = [
        _dataset_plan(order, index, weight, drawn, deviation)
        for index, (weight, drawn) in enumerate(zip(weights, counts, strict=True))
    ]
    used = [row.drawn_tokens for row in rows if row.weight]
    total_tokens = None if None in used else sum(count or 0 for count in used)
    return MixturePlan(
        unit="tokens" if order.by_tokens else "samples",
        total_samples=total,
        total_tokens=total_tokens,
        chunk_size=order.chunk_size,
        chunks=None if total is None else -(-total // order.chunk_size),
        shuffled=_shuffled(order),
        stops=_stops(order),
        measured_chunks=None if deviation is None else deviation.chunks,
        stages=order.stages,
        notes=tuple(_notes(order, rows)),
        datasets=tuple(_with_share(row, total_tokens) for row in rows),
    )


def _tokens(order: MixtureOrder, dataset: Dataset) -> int | None:
    """Tokens that a dataset holds."""
    exact = dataset.num_tokens()
    if exact is not None:
        return int(exact.sum())
    mean = order.means.get(dataset.name)
    return None if mean is None else round(mean * dataset.total)


def _part(tokens: int | None, samples: int | None, dataset: Dataset) -> int | None:
    """Tokens of some of a dataset's samples, at their mean."""
    if tokens is None or samples is None:
        return None
    return tokens * samples // dataset.total if dataset.total else 0


def _dataset_plan(
    order: MixtureOrder,
    index: int,
    weight: float,
    drawn: int | None,
    deviation: Deviation | None,
) -> DatasetPlan:
    dataset = order.datasets[index]
    total, tokens = dataset.total, _tokens(order, dataset)
    unread = max(total - drawn, 0) if drawn is not None else 0 if weight else total
    return DatasetPlan(
        name=dataset.name,
        weight=weight,
        samples=total,
        tokens=tokens,
        tokens_are_exact=dataset.num_tokens() is not None,
        drawn_samples=drawn,
        drawn_tokens=_part(tokens, drawn, dataset),
        token_share=None,
        passes=None if drawn is None else drawn / total if total else 0.0,
        repeats=None if drawn is None else max(-(-drawn // total) - 1, 0) if total else 0,
        unread_samples=unread,
        unread_tokens=_part(tokens, unread, dataset),
        ends_the_run=index in order.schedule.stopped_by,
        shuffle_window=_window(order, dataset),
        token_deviation=float(deviation.so_far[index]) if deviation is not None and weight else None,
        chunk_token_deviation=float(deviation.inside[index]) if deviation is not None and weight else None,
    )


def _with_share(row: DatasetPlan, total_tokens: int | None) -> DatasetPlan:
    if row.drawn_tokens is None or not total_tokens:
        return row
    return replace(row, token_share=row.drawn_tokens / total_tokens)


def _window(order: MixtureOrder, dataset: Dataset) -> int:
    if order.block is not None:
        return dataset.total if isinstance(order.block, str) else min(order.block, dataset.total)
    return dataset.max_count if order.shuffle_within_shard else min(1, dataset.total)


def _shuffled(order: MixtureOrder) -> str:
    if order.block == "global":
        return "each dataset as a whole"
    parts = ["shards"] if order.shuffle_shards else []
    parts += ["rows inside shards"] if order.shuffle_within_shard else []
    parts += [f"blocks of {order.block:,} samples"] if order.block is not None else []
    return ", ".join(parts) or "nothing"


def _stops(order: MixtureOrder) -> str:
    schedule = order.schedule
    if schedule.total is None:
        return "nothing: the run has no end"
    if schedule.total == 0:
        return "having no samples"
    enders = [(order.names[index], order.ends_of[index]) for index in schedule.stopped_by]
    if order.ends.floors is not None:
        return ", ".join(f"{name} completes pass {ends['stop_after_passes']}" for name, ends in enders)
    if all(ends["exhausted_policy"] == "redistribute" for _, ends in enders):
        return "every dataset has given all its samples"
    name, ends = enders[0]
    repeats = f" after {ends['max_repeats']} repeats" if ends["max_repeats"] is not None else ""
    return f"{name} has no samples left{repeats}"


def _notes(order: MixtureOrder, rows: Sequence[DatasetPlan]) -> list[str]:
    notes = []
    same: dict[str, list[str]] = defaultdict(list)
    for dataset, row in zip(order.datasets, rows, strict=True):
        same[dataset.fingerprint].append(dataset.name)
        if not row.samples:
            notes.append(f"{row.name} has no samples")
        elif not row.weight:
            notes.append(f"{row.name} has the weight 0: it is never drawn")
        if row.tokens is not None and not row.tokens_are_exact:
            notes.append(f"{row.name}: tokens are estimated from its bytes")
    notes += [f"{', '.join(names)} hold the same data" for names in same.values() if len(names) > 1]
    made = {dataset.tokenizer: dataset.name for dataset in reversed(order.datasets) if dataset.tokenizer}
    if len(made) > 1:
        notes.append(f"{', '.join(reversed(made.values()))} were made by different tokenizers")
    return notes


HEADINGS = (
    "dataset",
    "weight",
    "samples",
    "tokens",
    "drawn",
    "drawn tokens",
    "token share",
    "passes",
    "repeats",
    "unread",
    "unread tokens",
)
DEVIATIONS = ("largest deviation", "in a chunk")


def _lines(plan: MixturePlan) -> list[str]:
    is_measured = plan.measured_chunks is not None
    columns = len(HEADINGS) + (len(DEVIATIONS) if is_measured else 0)
    table = [row[:columns] for row in ((*HEADINGS, *DEVIATIONS), *map(_cells, plan.datasets))]
    widths = [max(len(row[column]) for row in table) for column in range(columns)]
    total = "without end" if plan.total_samples is None else f"{plan.total_samples:,} samples"
    tokens = f", {plan.total_tokens:,} tokens" if plan.total_tokens is not None else ""
    chunks = f"{plan.chunks:,} chunks" if plan.chunks is not None else "chunks"
    lines = [f"weights count {plan.unit}", *(_row(row, widths) for row in table)]
    lines += [f"total: {total}{tokens} in {chunks} of {plan.chunk_size:,}", f"ends when: {plan.stops}"]
    lines.append(f"shuffled: {plan.shuffled}")
    if is_measured:
        lines.append(
            f"deviation: of the share of tokens from the weight at the ends of the first "
            f"{plan.measured_chunks:,} chunks"
        )
    if len(plan.stages) > 1:
        lines += [f"from chunk {stage.first_chunk:,} on: {_weights(stage)}" for stage in plan.stages]
    return [*lines, *(f"note: {note}" for note in plan.notes)]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()


def _weights(stage: MixtureStage) -> str:
    return ", ".join(f"{name} {weight:g}" for name, weight in stage.weights.items())


def _cells(row: DatasetPlan) -> tuple[str, ...]:
    return (
        row.name,
        _share(row.weight),
        f"{row.samples:,}",
        _count(row.tokens, "" if row.tokens_are_exact else "~"),
        _count(row.drawn_samples),
        _count(row.drawn_tokens),
        _share(row.token_share),
        "-" if row.passes is None else f"{row.passes:.3f}",
        _count(row.repeats),
        _count(row.unread_samples),
        _count(row.unread_tokens),
        _share(row.token_deviation),
        _share(row.chunk_token_deviation),
    )


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if value >= 1e-4 or not value else f"{value:.1e}"  # noqa: PLR2004 - four digits


def _count(value: int | None, prefix: str = "") -> str:
    return "-" if value is None else f"{prefix}{value:,}"
