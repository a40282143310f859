"""Canonical JSON and the fingerprints made of it.

A fingerprint is the first 32 hexadecimal digits of the SHA-256 of a value's canonical JSON: keys sorted,
no white space, UTF-8. Only declared values go in, never paths, times, pickles or `repr`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson


def canonical_json(value: Any) -> bytes:
    """The one byte string that stands for a JSON value."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def fingerprint(value: Any) -> str:
    """32 hexadecimal digits that name a JSON value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:32]
