"""Fields of records that carry their own data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.errors import known_names
from runtime.records import token_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def tokens_in(payload: Any, field: str) -> NDArray[Any]:
    """The token ids of a record.

    Args:
        payload: a mapping of fields, or the ids themselves.
        field: that holds them; "auto": `input_ids`, `tokens`, or the only one that can.

    Raises:
        ValueError: there is no such field, or it holds no ids.
    """
    if not isinstance(payload, Mapping):
        if field != "auto":
            raise ValueError(f"tokens_field: expected records with a field {field!r}, found {_kind(payload)}")
        return _ids("a record", payload)
    name = _tokens_field(payload) if field == "auto" else field
    if name not in payload:
        raise ValueError(f"tokens_field: no field {name!r}{known_names(name, payload)}")
    return _ids(f"tokens_field: {name!r}", payload[name])


def _tokens_field(payload: Mapping[str, Any]) -> str:
    usual = token_field(payload)
    if usual is not None:
        return usual
    possible = [
        name
        for name, value in payload.items()
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"
    ]
    if len(possible) != 1:
        raise ValueError(
            f"tokens_field: cannot tell which field holds the token ids; fields are {', '.join(payload)}"
        )
    return possible[0]


def _ids(what: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, np.ndarray | list | tuple):
        raise ValueError(f"{what}: expected token ids, found {_kind(value)}")  # noqa: TRY004 - see `tokens_in`
    ids = np.asarray(value) if len(value) else np.zeros(0, np.uint16)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"{what}: expected integers of one dimension, found {ids.dtype} of shape {ids.shape}"
        )
    return ids


def stacked(payloads: Sequence[Any], name: str) -> Any:
    """A field of several records: an array with a first dimension of them, or a list of what is no number.

    Raises:
        ValueError: a record lacks the field, or their shapes differ.
    """
    for payload in payloads:
        if not isinstance(payload, Mapping) or name not in payload:
            hint = known_names(name, payload) if isinstance(payload, Mapping) else f" in {_kind(payload)}"
            raise ValueError(f"extra_fields: no field {name!r}{hint}")
    values = [payload[name] for payload in payloads]
    if not all(isinstance(value, np.ndarray | np.generic | int | float | list | tuple) for value in values):
        return values
    arrays = [np.asarray(value) for value in values]
    shapes = {each.shape for each in arrays}
    if len(shapes) > 1:
        raise ValueError(f"extra_fields: {name!r}: rows have different shapes: {sorted(shapes)[:4]}")
    return np.stack(arrays)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
