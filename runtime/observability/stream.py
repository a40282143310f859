"""Running through a pipeline and taking note of what it costs and gives."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime.pipeline import Pipeline
    from runtime.training.batches import SampleBatch


@dataclass
class ComponentCounts:
    """What was delivered of a component of the mixture."""

    documents: int = 0
    tokens: int = 0


@dataclass
class StreamTotals:
    """What was delivered up to now, and what it took.

    Attributes:
        batches, rows: delivered.
        slots: places for tokens in these rows.
        tokens: that fill them; the rest is padding.
        seconds: spent here; what the caller does with a batch is not counted.
        waiting_seconds: of these in which the next batch was waited for.
        array_seconds: of these in which batches became arrays.
        cpu_seconds: of this process, all threads.
        first_batch_seconds: until the first batch was there, as arrays.
        components: by id.
    """

    batches: int = 0
    rows: int = 0
    slots: int = 0
    tokens: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    array_seconds: float = 0.0
    cpu_seconds: float = 0.0
    first_batch_seconds: float = 0.0
    components: dict[int, ComponentCounts] = field(default_factory=dict)

    @property
    def fill(self) -> float:
        """Tokens a place."""
        return self.tokens / self.slots if self.slots else 0.0

    def add(self, batch: SampleBatch, slots: int) -> None:
        """Count a batch."""
        self.batches += 1
        self.rows += len(batch)
        self.slots += slots
        for number, (documents, tokens) in batch.by_component().items():
            counts = self.components.setdefault(number, ComponentCounts())
            counts.documents += documents
            counts.tokens += tokens
            self.tokens += tokens

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "fill": self.fill}


def stream(pipeline: Pipeline, steps: int | None) -> Iterator[tuple[SampleBatch, StreamTotals]]:
    """Iterate a pipeline and make arrays of every batch, as a training loop would.

    Args:
        pipeline: to be closed by the caller.
        steps: batches at most; None: all.

    Yields:
        Each batch, and the totals with it; always the same object.
    """
    totals = StreamTotals()
    batches = iter(pipeline)
    while steps is None or totals.batches < steps:
        asked, cpu_asked = time.perf_counter(), time.process_time()
        batch = next(batches, None)
        received = time.perf_counter()
        totals.waiting_seconds += received - asked
        if batch is None:
            totals.seconds += received - asked
            totals.cpu_seconds += time.process_time() - cpu_asked
            return
        slots = batch.to_training()["input_ids"].size
        made = time.perf_counter()
        totals.array_seconds += made - received
        totals.first_batch_seconds = totals.first_batch_seconds or made - asked
        totals.add(batch, slots)
        totals.seconds += time.perf_counter() - asked
        totals.cpu_seconds += time.process_time() - cpu_asked
        yield batch, totals


def memory() -> dict[str, int]:
    """Bytes of this process that are resident: `private`, and `mapped` from files; empty where unknown."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    names = {"private": "RssAnon", "mapped": "RssFile"}
    return {name: int(lines[key].split()[0]) * 1024 for name, key in names.items() if key in lines}
