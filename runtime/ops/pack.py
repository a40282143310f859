"""Packing documents into rows of a fixed number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from runtime.blocks import NO_TOKENS, Block
from runtime.ops.accumulators import Accumulator, LaneAccumulator, pieces_size
from runtime.ops.base import BaseOp, OpContext, OpTraits
from runtime.ops.bins import BinPacker, Packer, Rows, WrapPacker

if TYPE_CHECKING:
    from collections.abc import Sequence

ALGORITHMS = ("first_fit", "best_fit", "wrap", "best_fit_wrap")
DEFAULT_BINS = 32


class PackAccumulator(LaneAccumulator[Packer]):
    """Rows of one lane at a time."""

    def __init__(self, op: PackFlatOp) -> None:
        super().__init__()
        self._op = op

    def new_lane(self, lane_id: int) -> Packer:
        del lane_id
        return self._op.new_packer()

    def push(self, lane: Packer, block: Block) -> list[Block]:
        if bool((block.pieces.ref == NO_TOKENS).any()):
            raise TypeError("pack_flat: expected records with token ids in the field tokens or input_ids")
        return self._blocks(block.lane, lane.push(block.pieces))

    def drain(self, lane: Packer, lane_id: int) -> list[Block]:
        return self._blocks(lane_id, lane.flush())

    def pending(self, lane: Packer) -> bool:
        return lane.held is not None

    def held(self, lane: Packer) -> tuple[int, int]:
        return pieces_size(lane.held)

    def _blocks(self, lane_id: int, rows: Rows | None) -> list[Block]:
        if rows is None:
            return []
        op = self._op
        return [Block(lane_id, rows.pieces, rows.rows, capacity=op.max_length, pad_id=op.pad_id)]


class PackFlatOp(BaseOp):
    """Packs documents into rows; nothing is dropped.

    Args:
        max_length: tokens a row.
        num_bins: open rows a lane; not for "wrap".
        max_sequences_per_bin: documents in a row at most.
        algorithm: "wrap" cuts documents where a row is full; "first_fit" and "best_fit" keep them whole where
            they are shorter than a row; "best_fit_wrap" cuts where no row has room.
        pad_token_id: the id of padding; padding is known by its place, so any will do.
        min_sequence_length: a row with less room than this counts as full.
        flush_strategy: which row is closed when too many are open: the one opened first ("fifo") or the
            "fullest".
    """

    name = "pack_flat"
    takes_blocks: ClassVar[bool] = True

    def __init__(
        self,
        max_length: int,
        *,
        num_bins: int | None = None,
        max_sequences_per_bin: int | None = None,
        algorithm: str = "first_fit",
        pad_token_id: int | None = None,
        min_sequence_length: int = 1,
        flush_strategy: str = "fifo",
    ) -> None:
        if max_length < 1:
            raise ValueError(f"pack_flat: max_length: expected 1 or more, found {max_length}")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"pack_flat: algorithm: expected {', '.join(ALGORITHMS)}, found {algorithm!r}")
        if flush_strategy not in ("fifo", "fullest"):
            raise ValueError(f"pack_flat: flush_strategy: expected fifo or fullest, found {flush_strategy!r}")
        self.max_length = max_length
        self.pad_id = pad_token_id or 0
        self._algorithm = algorithm
        self._num_bins = num_bins or DEFAULT_BINS
        self._most = max_sequences_per_bin
        self._min_room = min_sequence_length
        self._close_fullest = flush_strategy == "fullest"

    def new_packer(self) -> Packer:
        """The algorithm for one lane."""
        if self._algorithm == "wrap":
            return WrapPacker(self.max_length)
        return BinPacker(
            self.max_length,
            self._num_bins,
            best=self._algorithm != "first_fit",
            wrap=self._algorithm == "best_fit_wrap",
            max_sequences=self._most,
            close_fullest=self._close_fullest,
            min_room=self._min_room,
        )

    def traits(self) -> OpTraits:
        return OpTraits(preserves_cursor_order=False)

    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        del deterministic, ctx
        return PackAccumulator(self)

    def process_many(self, elems: Sequence[Any]) -> Sequence[Any]:
        return elems
