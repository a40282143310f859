"""From pointers to samples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from runtime.blocks import Block
from runtime.ops.accumulators import Accumulator, PassthroughAccumulator
from runtime.ops.base import BaseOp, OpContext, OpTraits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.io.token_store import TokenStore


class FetchOp(BaseOp):
    """Looks up where the tokens of samples lie and how many there are; no token is read yet."""

    name = "fetch"
    takes_blocks: ClassVar[bool] = True

    def setup(self, ctx: OpContext) -> None:
        self._store: TokenStore = ctx.get("tokens")

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=True)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return PassthroughAccumulator()

    def process_many(self, elems: Sequence[Any]) -> Block:
        assert isinstance(elems, Block)
        refs, lengths = self._store.find(elems.pieces.sample)
        return replace(elems, pieces=replace(elems.pieces, ref=refs, length=lengths))
