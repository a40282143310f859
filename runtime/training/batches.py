"""What the training loop receives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.training.materialize import positions_of, row_view, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.blocks import Batch
    from runtime.io.token_store import TokenStore
    from runtime.types import SampleId, SampleRecord


@dataclass(frozen=True)
class TrainingOptions:
    """The arguments of `SampleBatch.to_training` that decide what is in it."""

    return_labels: bool = False
    ignore_index: int = -100
    return_num_valid_tokens: bool = False
    return_loss_mask: bool = False
    return_cu_seqlens: bool = False
    return_padding_mask: bool = False
    eos_mask_loss: bool = False
    eos_token_id: int | None = None
    position_mode: str = "preserve"

    @property
    def needs_padding(self) -> bool:
        """Whether anything that is asked for depends on where padding is."""
        return (
            self.return_labels
            or self.return_loss_mask
            or self.return_padding_mask
            or self.return_num_valid_tokens
        )


class SampleBatch:
    """Rows for one step of one rank.

    Tokens are copied when `to_training` is called, and not before.
    """

    def __init__(self, batch: Batch, store: TokenStore) -> None:
        self._batch, self._store = batch, store

    def __len__(self) -> int:
        return len(self._batch)

    @cached_property
    def records(self) -> Sequence[SampleRecord]:
        """The rows as records."""
        return list(self._batch.block.slice(self._batch.first, self._batch.stop))

    @property
    def ids(self) -> list[SampleId]:
        """The sample that each row begins with."""
        return [record.meta.sample_id for record in self.records]

    @property
    def lane_ids(self) -> list[int]:
        """The lane of each row."""
        return [record.meta.lane_id for record in self.records]

    @property
    def chunk_ids(self) -> list[int]:
        """The chunk that each row begins in."""
        return [record.meta.chunk_id for record in self.records]

    @property
    def lineage_paths(self) -> list[tuple[int, ...]]:
        """The lineage of each row."""
        return [record.meta.lineage for record in self.records]

    def to_training(
        self,
        *,
        return_labels: bool = False,
        dtype: Any = "auto",
        ignore_index: int = -100,
        rename_fields: dict[str, str] | None = None,
        flatten: bool = False,
        exclude_fields: Sequence[str] = (),
        return_num_valid_tokens: bool = False,
        return_loss_mask: bool = False,
        return_cu_seqlens: bool = False,
        return_padding_mask: bool = False,
        eos_mask_loss: bool = False,
        eos_token_id: int | None = None,
        position_mode: str = "preserve",
        framework: str = "numpy",
    ) -> dict[str, Any]:
        """The batch as arrays.

        Args:
            return_labels: also `labels`, the next token of each; rows get one token shorter.
            dtype: of ids, positions and labels; "auto": int64.
            ignore_index: the label of what is not to be learned: padding, and what the loss mask leaves out.
            rename_fields: other names for the arrays.
            flatten: one dimension, row after row.
            exclude_fields: arrays to leave out.
            return_num_valid_tokens: also `num_valid_tokens`: labels that count, or tokens that are no
                padding.
            return_loss_mask: also `loss_mask`, bool of the ids' shape.
            return_cu_seqlens: also `cu_seqlens`, int32: where each document begins in the rows laid end to
                end, and their end; and `max_seqlen`.
            return_padding_mask: also `padding_mask`, bool of the ids' shape: True where there is padding.
            eos_mask_loss: leave the prediction of `eos_token_id` out of the loss.
            eos_token_id: that id.
            position_mode: "preserve": positions begin anew with each document; "sequence": with each row.
            framework: "numpy" or "torch".

        Returns:
            `input_ids` and `positions`, of shape (rows, tokens), and what was asked for.
        """
        options = TrainingOptions(
            return_labels,
            ignore_index,
            return_num_valid_tokens,
            return_loss_mask,
            return_cu_seqlens,
            return_padding_mask,
            eos_mask_loss,
            eos_token_id,
            position_mode,
        )
        kind = np.dtype(np.int64 if dtype == "auto" else dtype)
        arrays = self._arrays(kind, options)
        for name in exclude_fields:
            arrays.pop(name, None)
        if flatten:
            arrays = {
                name: value.reshape(-1) if isinstance(value, np.ndarray) else value
                for name, value in arrays.items()
            }
        if framework == "torch":
            arrays = _as_torch(arrays)
        elif framework != "numpy":
            raise ValueError(f"framework: expected numpy or torch, found {framework!r}")
        return {(rename_fields or {}).get(name, name): value for name, value in arrays.items()}

    def _arrays(self, kind: np.dtype[Any], options: TrainingOptions) -> dict[str, Any]:
        rows = len(self._batch)
        tokens = tokens_of(self._batch, self._store).astype(kind).reshape(rows, -1)
        width = tokens.shape[1] - options.return_labels
        arrays: dict[str, Any] = {
            "input_ids": tokens[:, :width],
            "positions": self._positions(tokens.shape[1], kind, options.position_mode)[:, :width],
        }
        if options.return_cu_seqlens:
            arrays["cu_seqlens"], arrays["max_seqlen"] = self._boundaries(width, tokens.shape[1])
        if options.needs_padding:
            arrays |= self._targets(tokens, width, options)
        return arrays

    def _positions(self, stored: int, kind: np.dtype[Any], mode: str) -> NDArray[Any]:
        if mode == "sequence":
            return np.tile(np.arange(stored, dtype=kind), (len(self), 1))
        if mode == "preserve":
            return positions_of(self._batch, self._store, kind).reshape(len(self), -1)
        raise ValueError(f"position_mode: expected preserve or sequence, found {mode!r}")

    def _targets(self, tokens: NDArray[Any], width: int, options: TrainingOptions) -> dict[str, Any]:
        """What is to be learned of which token."""
        padding = self._padding().reshape(len(self), -1)
        shift = int(options.return_labels)
        targets, learned = tokens[:, shift:], ~padding[:, shift:]
        if options.eos_mask_loss:
            if options.eos_token_id is None:
                raise ValueError("eos_mask_loss: needs eos_token_id")
            learned &= targets != options.eos_token_id
        arrays: dict[str, Any] = {}
        if options.return_labels:
            arrays["labels"] = np.where(learned, targets, tokens.dtype.type(options.ignore_index))
        if options.return_loss_mask:
            arrays["loss_mask"] = learned
        if options.return_padding_mask:
            arrays["padding_mask"] = padding[:, :width]
        if options.return_num_valid_tokens:
            arrays["num_valid_tokens"] = int(np.count_nonzero(learned))
        return arrays

    def _padding(self) -> NDArray[np.bool_]:
        view = row_view(self._batch.block, self._store)
        which = slice(view.edges[self._batch.first], view.edges[self._batch.stop])
        return np.repeat(view.is_padding[which], view.lengths[which])

    def _boundaries(self, width: int, stored: int) -> tuple[NDArray[np.int32], int]:
        """Where documents begin in rows of `width` tokens, of the `stored` ones that rows have."""
        view = row_view(self._batch.block, self._store)
        lengths = view.lengths[view.edges[self._batch.first] : view.edges[self._batch.stop]]
        starts = np.cumsum(lengths) - lengths
        row, place = np.divmod(starts[lengths > 0], stored)
        edges = np.append((row * width + place)[place < width], len(self._batch) * width).astype(np.int32)
        return edges, int(np.diff(edges).max(initial=0))


def _as_torch(arrays: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError('framework="torch" needs `pip install tokenloom[torch]`') from error
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in arrays.items()
    }
