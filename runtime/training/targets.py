"""What a model is to learn of a batch: labels, masks, counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class Targets:
    """Which of the arrays that say so are wanted, and how they are made; see `SampleBatch.to_training`."""

    labels: bool = False
    loss_mask: bool = False
    padding_mask: bool = False
    num_valid_tokens: bool = False
    ignore_index: int = -100
    eos_token_id: int | None = None

    def arrays(self, tokens: NDArray[Any], padding: NDArray[np.bool_] | None) -> dict[str, Any]:
        """The arrays.

        Args:
            tokens: of shape (rows, stored tokens).
            padding: of the same shape; None: there is none.
        """
        shift = int(self.labels)
        width = max(tokens.shape[1] - shift, 0)
        inputs, following = tokens[:, :width], tokens[:, shift:]
        learned = None if padding is None else ~padding[:, shift:]
        if self.eos_token_id is not None:
            not_eos = inputs != self.eos_token_id
            learned = not_eos if learned is None else learned & not_eos
        arrays: dict[str, Any] = {}
        if self.labels:
            arrays["labels"] = self._labels(following, learned)
        if self.loss_mask:
            arrays["loss_mask"] = np.ones(inputs.shape, np.bool_) if learned is None else learned
        if self.padding_mask:
            none = np.zeros(inputs.shape, np.bool_)
            arrays["padding_mask"] = none if padding is None else padding[:, :width]
        if self.num_valid_tokens:
            arrays["num_valid_tokens"] = inputs.size if learned is None else int(np.count_nonzero(learned))
        return arrays

    def _labels(self, following: NDArray[Any], learned: NDArray[np.bool_] | None) -> NDArray[Any]:
        if learned is None:
            return following.copy()
        limits = np.iinfo(following.dtype)
        if not limits.min <= self.ignore_index <= limits.max:
            raise ValueError(f"ignore_index: {following.dtype} does not hold {self.ignore_index}")
        return np.where(learned, following, following.dtype.type(self.ignore_index))
