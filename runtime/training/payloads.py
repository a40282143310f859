"""Fields of records that carry their own data."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

USUAL = ("input_ids", "tokens")
"""Fields that hold token ids, where nothing else is said."""


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
        raise ValueError(f"tokens_field: no field {name!r}{nearest(name, payload)}")
    return _ids(f"tokens_field: {name!r}", payload[name])


def _tokens_field(payload: Mapping[str, Any]) -> str:
    usual = [name for name in USUAL if name in payload]
    if usual:
        return usual[0]
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
            hint = nearest(name, payload) if isinstance(payload, Mapping) else f" in {_kind(payload)}"
            raise ValueError(f"extra_fields: no field {name!r}{hint}")
    values = [payload[name] for payload in payloads]
    if not all(isinstance(value, np.ndarray | np.generic | int | float | list | tuple) for value in values):
        return values
    arrays = [np.asarray(value) for value in values]
    shapes = {each.shape for each in arrays}
    if len(shapes) > 1:
        raise ValueError(f"extra_fields: {name!r}: rows have different shapes: {sorted(shapes)[:4]}")
    return np.stack(arrays)


def nearest(name: str, known: Iterable[str]) -> str:
    """What to tell of a name that is not known: the one that resembles it, and all."""
    names = [str(each) for each in known]
    near = get_close_matches(str(name), names, 1)
    return f"{f' (did you mean {near[0]!r}?)' if near else ''}; known are {', '.join(names)}"


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
