"""What the training loop receives."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.errors import known_names
from runtime.records import records_of
from runtime.training.materialize import BatchView
from runtime.training.payloads import stacked, tokens_in
from runtime.training.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from runtime.blocks import Batch
    from runtime.io.token_store import TokenStore
    from runtime.training.provenance import Origin
    from runtime.types import SampleId, SampleRecord


ARRAYS = (
    "input_ids",
    "positions",
    "labels",
    "loss_mask",
    "padding_mask",
    "cu_seqlens",
    "max_seqlen",
    "num_valid_tokens",
)
DOCUMENT_IDS = "document_ids"
"""The extra field that every batch has."""


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
        return records_of(self._batch.block.slice(self._batch.first, self._batch.stop), self._store)

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

    def by_component(self) -> dict[int, tuple[int, int]]:
        """For every component of the mixture the documents that end in these rows, and the tokens."""
        block, first, stop = self._batch.block, self._batch.first, self._batch.stop
        places = slice(first, stop) if block.rows is None else slice(block.rows[first], block.rows[stop])
        component = block.pieces.component[places]
        tokens = np.bincount(component, block.pieces.length[places])
        documents = np.bincount(component[block.pieces.closes[places]], minlength=len(tokens))
        counts = zip(documents.tolist(), tokens.tolist(), strict=True)
        return {number: (ended, int(size)) for number, (ended, size) in enumerate(counts) if ended or size}

    def provenance(self) -> list[list[Origin]]:
        """For every row its pieces in order: the document that each is of, and which of its tokens.

        Raises:
            IntegrityError: a shard or a catalog is not there any longer, or is damaged.
        """
        from runtime.training.provenance import origins  # noqa: PLC0415 - readers of files, which few need

        block = self._batch.block.slice(self._batch.first, self._batch.stop)
        lengths = block.pieces.length.tolist()
        if block.payloads is not None and block.rows is None and not any(lengths):
            lengths = [_number_of_tokens(payload) for payload in block.payloads]
        return origins(block, lengths, self._store.datasets)

    def to_training(
        self,
        *,
        tokens_field: str = "auto",
        return_labels: bool = False,
        dtype: Any = "auto",
        extra_fields: Sequence[str] = (),
        ignore_index: int = -100,
        rename_fields: Mapping[str, str] | None = None,
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
        """The batch as arrays, none of which shares memory with another batch.

        With labels the ids are all but the last of each row, and label i is the id that follows id i. Where
        documents begin is known from their lengths and where padding is from its place, so padding may have
        the id of EOS.

        Args:
            tokens_field: of records with their own data: which field holds the ids; "auto": `input_ids`,
                `tokens`, or the only one that can.
            return_labels: also `labels`.
            dtype: of ids, positions and labels, an integer type; "auto": int64.
            extra_fields: also these fields of records with their own data, an array each; and `document_ids`,
                int32 of the ids' shape: 0, 1, ... for the documents of a row, padding counted as one.
            ignore_index: the label of what is not to be learned: padding, and what follows EOS if
                `eos_mask_loss`.
            rename_fields: other names for the arrays.
            flatten: one dimension, row after row.
            exclude_fields: arrays to leave out.
            return_num_valid_tokens: also `num_valid_tokens`: how often `loss_mask` is True.
            return_loss_mask: also `loss_mask`, bool of the ids' shape: whether the label, or without labels
                the id, is to be learned.
            return_cu_seqlens: also `cu_seqlens`, int32: where each document begins in the rows laid end to
                end, padding counted as one, and their end; and `max_seqlen`, the longest of them.
            return_padding_mask: also `padding_mask`, bool of the ids' shape: True where there is padding.
            eos_mask_loss: what an `eos_token_id` predicts, another document, is not to be learned.
            eos_token_id: that id.
            position_mode: "preserve": positions begin anew with each document; "sequence": with each row.
            framework: "numpy" or "torch", whose tensors are not copied once more.

        Returns:
            `input_ids` and `positions`, of shape (rows, tokens), and what was asked for.

        Raises:
            ValueError: an argument has no such value or names no such field, the ids do not fit the type, or
                rows have different lengths.
        """
        if rename_fields or exclude_fields:
            _check_names(rename_fields or {}, exclude_fields, extra_fields)
        view = BatchView(self._batch, self._store, tokens_field)
        kind = INT64 if dtype == "auto" else _integer_type(dtype)
        tokens = view.tokens(kind)
        width = max(view.width - return_labels, 0)
        arrays: dict[str, Any] = {"input_ids": tokens[:, :width]}
        if "positions" not in exclude_fields:
            arrays["positions"] = _positions(view, kind, position_mode)[:, :width]
        if eos_mask_loss and eos_token_id is None:
            raise ValueError("eos_mask_loss: needs eos_token_id, the id of EOS")
        if return_labels or return_loss_mask or return_padding_mask or return_num_valid_tokens:
            wanted = Targets(
                return_labels,
                return_loss_mask,
                return_padding_mask,
                return_num_valid_tokens,
                ignore_index,
                eos_token_id if eos_mask_loss else None,
            )
            arrays |= wanted.arrays(tokens, view.padding())
        if return_cu_seqlens:
            arrays["cu_seqlens"] = view.boundaries(width)
            arrays["max_seqlen"] = int(np.diff(arrays["cu_seqlens"]).max(initial=0))
        if extra_fields:
            arrays |= self._extra(view, width, extra_fields)
        if flatten or framework != "numpy" or rename_fields or exclude_fields:
            return _finished(arrays, rename_fields, exclude_fields, flatten=flatten, framework=framework)
        return arrays

    def _extra(self, view: BatchView, width: int, names: Sequence[str]) -> dict[str, Any]:
        """Fields that were asked for by name."""
        arrays: dict[str, Any] = {}
        payloads = self._batch.block.payloads
        for name in names:
            if name in ARRAYS:
                raise ValueError(f"extra_fields: {name!r} is the name of an array that is made anyway")
            if name == DOCUMENT_IDS:
                arrays[name] = view.document_ids()[:, :width]
            elif payloads is None:
                raise ValueError(f"extra_fields: no field {name!r}{known_names(name, [DOCUMENT_IDS])}")
            else:
                arrays[name] = stacked(payloads[self._batch.first : self._batch.stop], name)
        return arrays


INT64 = np.dtype(np.int64)


def _integer_type(dtype: Any) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise ValueError(f'dtype: expected "auto" or a type of numpy, found {dtype!r}') from error
    if kind.kind not in "iu":
        raise ValueError(f"dtype: expected an integer type, found {kind}")
    return kind


def _positions(view: BatchView, kind: np.dtype[Any], mode: str) -> NDArray[Any]:
    if mode == "preserve":
        return view.positions(kind)
    if mode == "sequence":
        return view.positions_in_rows(kind)
    raise ValueError(f"position_mode: expected preserve or sequence, found {mode!r}")


def _check_names(rename: Mapping[str, str], exclude: Sequence[str], extra: Sequence[str]) -> None:
    known = dict.fromkeys([*ARRAYS, *extra])
    for argument, names in (("rename_fields", rename), ("exclude_fields", exclude)):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument}: there is no array {name!r}{known_names(name, known)}")
    kept = [rename.get(name, name) for name in known if name not in exclude]
    if twice := sorted({name for name in kept if kept.count(name) > 1}):
        raise ValueError(f"rename_fields: two arrays would be called {', '.join(map(repr, twice))}")


def _finished(
    arrays: dict[str, Any],
    rename: Mapping[str, str] | None,
    exclude: Sequence[str],
    *,
    flatten: bool,
    framework: str,
) -> dict[str, Any]:
    """Arrays as they were asked for."""
    for name in exclude:
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
    return {rename.get(name, name): value for name, value in arrays.items()} if rename else arrays


def _number_of_tokens(payload: Any) -> int:
    try:
        return len(tokens_in(payload, "auto"))
    except ValueError:
        return 0


def _as_torch(arrays: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError('framework="torch" needs `pip install tokenloom[torch]`') from error
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in arrays.items()
    }
