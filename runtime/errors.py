"""The errors of the training half, beside those of data and jobs (`prep.catalog.errors`), and their wording.

TokenloomError
└── OperatorError   exit 1: a function or an operator of the user raised, or gave what cannot be used
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from prep.catalog.errors import TokenloomError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime.types import SampleCursor, SampleMeta


class OperatorError(TokenloomError):
    """What a user's operator did wrong, at which record, and how to put it right.

    Attributes:
        operator: its name.
        cursor: the record's identity in its lane; None: no single record is to blame.
    """

    def __init__(self, message: str, operator: str = "", cursor: SampleCursor | None = None) -> None:
        super().__init__(message)
        self.operator, self.cursor = operator, cursor

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.operator, self.cursor)


def operator_error(operator: str, meta: SampleMeta | None, what: str) -> OperatorError:
    """The error of an operator at a record.

    Args:
        operator: its name.
        meta: of the record; None: no single one is to blame.
        what: happened, and what to do.
    """
    place = "" if meta is None else f" {where(meta)}:"
    cursor = None if meta is None else meta.cursor
    return OperatorError(f"operator {operator!r}:{place} {what}", operator, cursor)


def where(meta: SampleMeta) -> str:
    """A record's identity in words."""
    child = f", child {'.'.join(map(str, meta.lineage))}" if meta.lineage else ""
    sample = ", ".join(map(str, meta.sample_id))
    return f"lane {meta.lane_id}, chunk {meta.chunk_id}, place {meta.chunk_offset}, sample ({sample}){child}"


def raised(error: BaseException) -> str:
    """An exception in a few words."""
    text = str(error)
    return f"raised {type(error).__name__}{f': {text}' if text else ''}"


def nearest(name: object, known: Iterable[object]) -> str:
    """A hint at the known name that resembles an unknown one; empty if none does."""
    found = get_close_matches(str(name), [str(each) for each in known], 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def known_names(name: object, known: Iterable[object]) -> str:
    """What to tell of a name that is not known: the one that resembles it, and all."""
    names = [str(each) for each in known]
    return f"{nearest(name, names)}; known are {', '.join(names)}"
