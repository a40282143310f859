"""Fingerprints are of declared values, the same everywhere and for ever."""

from __future__ import annotations

import pytest

from prep.catalog.fingerprint import canonical_json, fingerprint


def test_the_fingerprint_of_a_value_is_pinned() -> None:
    assert canonical_json({"b": [1, None, True], "a": "ü"}) == '{"a":"ü","b":[1,null,true]}'.encode()
    assert fingerprint({"b": [1, None, True], "a": "ü"}) == "7f6d95bfd383437ee2aa0ade81e5acd4"


def test_the_order_of_keys_does_not_matter() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {}),
        ([["ab", "c"]], [["a", "bc"]]),
        (0, False),
        ("é", "e\u0301"),
    ],
)
def test_different_values_have_different_fingerprints(left: object, right: object) -> None:
    assert fingerprint(left) != fingerprint(right)


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes"])
def test_what_is_no_json_has_no_fingerprint(value: object) -> None:
    with pytest.raises(TypeError):
        fingerprint(value)
