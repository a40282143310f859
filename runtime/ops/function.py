"""A user's operator that is a function on groups of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from runtime.ops.accumulators import Accumulator, CountingAccumulator
from runtime.ops.base import BaseOp, OpContext, OpTraits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime.types import SampleRecord

FUNCTIONS = ("accumulator", "process_one", "validation_samples")
"""What an operator made of functions may have besides `process_many`."""

GROUP = 64
"""Records a call, where nothing else is said."""


class FunctionOp(BaseOp):
    """An operator made of functions.

    Args:
        name: in messages and plans.
        process_many: gets a list of records of one lane and returns a list of records; it keeps nothing
            between calls. For each record that it leaves out it returns `tombstones_for_record(record)`.
        traits: what the planner has to know.
        accumulator: called as `BaseOp.accumulator` is; None: groups of 64 records.
        process_one: the same on a single record, if that is quicker.
        validation_samples: records to try it on, or what returns them.
    """

    changes_content: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        process_many: Callable[[Sequence[Any]], Any],
        traits: OpTraits,
        *,
        accumulator: Callable[..., Accumulator] | None = None,
        process_one: Callable[[Any], Any] | None = None,
        validation_samples: Callable[[], Sequence[SampleRecord]] | Sequence[SampleRecord] | None = None,
    ) -> None:
        self.name = name
        self._process_many, self._process_one, self._traits = process_many, process_one, traits
        self._accumulator, self._samples = accumulator, validation_samples

    def traits(self) -> OpTraits:
        return self._traits

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        if self._accumulator is None:
            return CountingAccumulator(GROUP)
        return self._accumulator(deterministic=deterministic, ctx=ctx)

    def process_many(self, elems: Sequence[Any]) -> Any:
        return self._process_many(elems)

    def process_one(self, elem: Any) -> Any:
        return self._process_many([elem]) if self._process_one is None else self._process_one(elem)

    def validation_samples(self) -> Sequence[SampleRecord]:
        return (self._samples() if callable(self._samples) else self._samples) or ()
