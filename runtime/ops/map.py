"""A user's function on payloads, one at a time or some together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from runtime.blocks import Block
from runtime.errors import operator_error, raised
from runtime.ops.accumulators import Accumulator, SlicingAccumulator
from runtime.ops.base import BaseOp, OpContext, OpTraits
from runtime.records import PayloadError, payloads_of, with_payloads
from runtime.types import SampleMeta, SampleRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime.blocks import Ints, Item

MUTATED = 'changed the payload that it got; return a new one, such as {**payload, "field": value}'


class PayloadOp(BaseOp):
    """Gives records other payloads; they keep their identity, and what is left out is closed.

    Payloads of a token shard's records are `{"tokens": array}`; see `runtime.records`.
    """

    takes_blocks: ClassVar[bool] = True
    changes_content: ClassVar[bool] = True

    def __init__(self, *, drop_none: bool, parallelism: int | None) -> None:
        self._drop_none, self._parallelism = drop_none, parallelism or 1

    def setup(self, ctx: OpContext) -> None:
        self._store = ctx.get("tokens")

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=True, parallelism=self._parallelism)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return SlicingAccumulator()

    @abstractmethod
    def applied(self, block: Block, payloads: Sequence[Any]) -> list[Any]:
        """The new payload of each row; None leaves it out."""

    def process_many(self, elems: Sequence[Any]) -> list[Item]:
        assert isinstance(elems, Block)
        payloads = payloads_of(elems, self._store)
        before = [dict(each) if isinstance(each, Mapping) else None for each in payloads]
        found = self.applied(elems, payloads)
        for row, (payload, fields, after) in enumerate(zip(payloads, before, found, strict=True)):
            self._check(elems, row, after)
            if fields is not None and is_changed(payload, fields):
                raise operator_error(self.name, elems[row].meta, MUTATED)
        is_kept = [payload is not None for payload in found]
        if all(is_kept):
            return [self._changed(elems, found, payloads)]
        dropped = elems.take(np.flatnonzero(~np.array(is_kept))).closings()
        items: list[Item] = [dropped] if len(dropped.chunk) else []
        if not any(is_kept):
            return items
        kept = elems.take(np.flatnonzero(is_kept))
        return [
            self._changed(kept, list(compress(found, is_kept)), list(compress(payloads, is_kept))),
            *items,
        ]

    def _check(self, block: Block, row: int, found: Any) -> None:
        if found is None and not self._drop_none:
            what = "returned None; set drop_none=True to leave records out, or return a payload"
            raise operator_error(self.name, block[row].meta, what)
        if isinstance(found, SampleRecord | SampleMeta):
            what = f"returned a {type(found).__name__}; return the payload alone, or use add_op"
            raise operator_error(self.name, block[row].meta, what)

    def _changed(self, block: Block, payloads: list[Any], before: list[Any]) -> Block:
        try:
            found = with_payloads(block, payloads, self._store, before)
        except PayloadError as error:
            what = f"returned what cannot be used: {error}"
            raise operator_error(self.name, block[error.row].meta, what) from error
        if found.metas is None:
            return found
        return replace(found, metas=_recounted(found.metas, block.lengths, found.lengths))


class MapOp(PayloadOp):
    """A function from payload to payload.

    Args:
        fn: gets a payload and returns another; it must leave the one that it got as it was.
        drop_none: None leaves the record out; otherwise None is an error.
        parallelism: workers, for runners that have some.
    """

    name = "map_transform"

    def __init__(
        self, fn: Callable[[Any], Any], *, drop_none: bool = True, parallelism: int | None = None
    ) -> None:
        super().__init__(drop_none=drop_none, parallelism=parallelism)
        self._fn = fn

    def applied(self, block: Block, payloads: Sequence[Any]) -> list[Any]:
        found = []
        for row, payload in enumerate(payloads):
            try:
                found.append(self._fn(payload))
            except Exception as error:
                raise operator_error(self.name, block[row].meta, raised(error)) from error
        return found


class MapBatchOp(PayloadOp):
    """A function on the payloads of some records at a time; how many there are may differ from run to run.

    Args:
        fn: gets a list of payloads and returns one as long; it must leave those that it got as they were.
        drop_none: None in the place of a payload leaves the record out; otherwise it is an error.
        parallelism: workers, for runners that have some.
    """

    name = "map_batch"

    def __init__(
        self,
        fn: Callable[[list[Any]], Sequence[Any]],
        *,
        drop_none: bool = True,
        parallelism: int | None = None,
    ) -> None:
        super().__init__(drop_none=drop_none, parallelism=parallelism)
        self._fn = fn

    def applied(self, block: Block, payloads: Sequence[Any]) -> list[Any]:
        first = block[0].meta
        try:
            found: Any = self._fn(list(payloads))
        except Exception as error:
            raise operator_error(self.name, first, f"{raised(error)} for {len(block)} records") from error
        if not isinstance(found, list | tuple) or len(found) != len(block):
            what = f"{len(found):,}" if isinstance(found, list | tuple) else type(found).__name__
            what = f"expected a list of {len(block):,} payloads, one for each record, found {what}"
            raise operator_error(self.name, first, f"{what}; put None where a record is to be left out")
        return list(found)


def is_changed(payload: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether fields were put into a payload, taken out or replaced."""
    return len(payload) != len(before) or any(
        payload.get(name) is not value for name, value in before.items()
    )


def _recounted(metas: Sequence[SampleMeta], before: Ints, after: Ints) -> tuple[SampleMeta, ...]:
    """Token counts after records became shorter or longer; None where a record has several components."""
    found = []
    for meta, old, new in zip(metas, before.tolist(), after.tolist(), strict=True):
        components = list(meta.component_sample_counts)
        counts = {components[0]: new} if len(components) == 1 else None
        found.append(meta if old == new else replace(meta, component_token_counts=counts))
    return tuple(found)
