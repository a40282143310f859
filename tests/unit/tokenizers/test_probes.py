"""The strings on which backends are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prep.catalog.fingerprint import fingerprint
from prep.tokenizers.probes import describe_difference, first_difference, probe_ids, probe_strings
from prep.tokenizers.reference import ReferenceEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_there_are_about_two_hundred_of_them() -> None:
    """Case Q34."""
    probes = probe_strings(["<|endoftext|>"])
    assert len(probes) >= 200


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("empty", lambda text: text == ""),
        ("control-token text", lambda text: "foo <|eot|> bar" in text),
        ("combining marks", lambda text: "e\u0301" in text),
        ("emoji sequences", lambda text: "\u200d" in text and "\U0001f469" in text),
        ("CRLF", lambda text: "one\r\n" in text),
        ("runs of one character", lambda text: len(text) >= 300 and len(set(text)) == 1),
        ("CJK", lambda text: "\u4e2d\u6587" in text),
        ("Thai", lambda text: "\u0e44\u0e17\u0e22" in text),
        ("Arabic", lambda text: "\u0645\u0631\u062d\u0628\u0627" in text),
        ("long digit runs", lambda text: text.isdecimal() and len(text) >= 300),
        ("NUL", lambda text: "\x00" in text),
        ("Q13: .data", lambda text: text == ".data"),
    ],
)
def test_they_cover_what_encoders_get_wrong(what: str, found: Callable[[str], bool]) -> None:
    assert any(found(text) for text in probe_strings(["<|eot|>"])), what


def test_each_control_token_is_among_them_alone_inside_text_doubled_and_cut() -> None:
    probes = probe_strings(["<|a|>", "<|b|>"])
    for token in ("<|a|>", "<|b|>"):
        assert {token, f"foo {token} bar", token * 2, token[:-1]} <= set(probes)


def test_the_list_is_pinned_because_every_fingerprint_depends_on_it() -> None:
    assert fingerprint(probe_strings(["<|endoftext|>"])) == "a2b682ad2f687b2d5a745fb41b56f74d"


def test_every_probe_can_be_stored_and_sent() -> None:
    assert all(text.encode().decode() == text for text in probe_strings(["<|endoftext|>"]))


def test_ids_come_one_list_a_probe(tokenizer_json: Path) -> None:
    encoder = ReferenceEncoder(tokenizer_json.read_text(encoding="utf-8"))
    ids = probe_ids(encoder, ["the", "", "the the"])
    assert [len(found) > 0 for found in ids] == [True, False, True]
    assert ids[2][: len(ids[0])] == ids[0]


def test_the_first_difference_is_described_with_its_place_and_both_lists() -> None:
    assert first_difference(["x", "y"], [[1], [2, 3]], [[1], [2, 3]]) is None
    assert first_difference(["x"], [(1, 2)], [[1, 2]]) is None
    found = first_difference(["x", "yy"], [[1], [5, 6, 7]], [[1], [5, 9]])
    assert found == "'yy': from token 1 on expected [5, 6, 7] (3 in all), found [5, 9] (2 in all)"


def test_a_missing_tail_is_a_difference() -> None:
    found = describe_difference("x" * 100, list(range(50)), list(range(49)))
    assert "from token 49 on expected [46, 47, 48, 49] (50 in all), found [46, 47, 48] (49 in all)" in found
    assert len(found) < 250


def test_lists_of_different_length_are_a_bug_not_a_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        first_difference(["x", "y"], [[1], [2]], [[1]])
