"""BOS and EOS come from the tokenizer, or are asked for; never from a default of ours."""

# ruff: noqa: S106 - texts of tokens are no passwords

from __future__ import annotations

import json
from typing import Any

import pytest

from prep.catalog.errors import ConfigError
from prep.tokenizers.boundaries import Boundaries, resolve_boundaries
from prep.tokenizers.definition import TokenizerDefinition

BOS, EOS, PAD = ("<s>", 1), ("</s>", 2), ("<pad>", 0)
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}
BEHIND = {**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>"}}]}


def define(
    *control: tuple[str, int], processor: Any = None, settings: dict[str, Any] | None = None
) -> TokenizerDefinition:
    content = {
        "model": {"vocab": {"a": 3, "<|endoftext|>": 4}},
        "added_tokens": [{"content": text, "id": number, "special": True} for text, number in control],
        "post_processor": processor,
    }
    given = None if settings is None else json.dumps(settings).encode()
    return TokenizerDefinition.from_bytes(json.dumps(content).encode(), given, "tok/tokenizer.json")


def refusal(definition: TokenizerDefinition, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        resolve_boundaries(definition, **options)
    return str(raised.value)


def test_the_only_control_token_is_eos() -> None:
    assert resolve_boundaries(define(EOS)) == Boundaries(None, 2)


def test_the_settings_of_the_tokenizer_name_eos() -> None:
    """Case Q17."""
    assert resolve_boundaries(define(BOS, EOS, settings={"eos_token": "</s>"})).eos_id == 2
    assert resolve_boundaries(define(BOS, EOS, settings={"eos_token": {"content": "<s>"}})).eos_id == 1


def test_eos_that_cannot_be_told_is_an_error_that_lists_the_control_tokens() -> None:
    """Case Q17."""
    message = refusal(define(BOS, EOS))
    assert "'<s>' (1), '</s>' (2)" in message
    assert "tokenizer.eos_token" in message
    assert "none" in refusal(define())


def test_no_eos_is_looked_for_where_none_is_added() -> None:
    assert resolve_boundaries(define(BOS, EOS), add_eos=False) == Boundaries(None, None)


def test_a_configured_eos_has_to_be_a_control_token() -> None:
    """Case Q17: an ordinary entry and a text outside the vocabulary, each with what it is."""
    assert resolve_boundaries(define(BOS, EOS), eos_token="</s>").eos_id == 2
    message = refusal(define(BOS, EOS), eos_token="<|endoftext|>")
    assert "(id 4) is an ordinary token" in message
    assert "'</s>' (2)" in message
    assert "not in the vocabulary" in refusal(define(BOS, EOS), eos_token="<eot>")


def test_a_configured_eos_that_the_settings_contradict_is_an_error_with_both_ids() -> None:
    """Case Q17."""
    message = refusal(define(BOS, EOS, settings={"eos_token": "</s>"}), eos_token="<s>")
    assert "'<s>' (id 1)" in message
    assert "'</s>' (id 2)" in message
    assert "eos_override" in message
    same = resolve_boundaries(define(BOS, EOS, settings={"eos_token": "</s>"}), eos_token="</s>")
    assert same.eos_id == 2


def test_an_override_takes_any_token_but_none_that_does_not_exist() -> None:
    """Case Q17."""
    definition = define(BOS, EOS, settings={"eos_token": "</s>"})
    for text, number in (("<s>", 1), ("<|endoftext|>", 4), ("a", 3)):
        found = resolve_boundaries(definition, eos_token=text, eos_override=True)
        assert found.eos_id == number
    assert "no token of this tokenizer" in refusal(definition, eos_token="<eot>", eos_override=True)


def test_an_eos_named_by_the_settings_has_to_be_a_control_token_too() -> None:
    assert "ordinary token" in refusal(define(EOS, settings={"eos_token": "<|endoftext|>"}))
    assert "not in the vocabulary" in refusal(define(EOS, settings={"eos_token": "<gone>"}))


def test_no_bos_is_added_by_default_where_nothing_says_so() -> None:
    assert (
        resolve_boundaries(define(BOS, EOS, settings={"bos_token": "<s>"}), eos_token="</s>").bos_id is None
    )
    off = define(BOS, EOS, settings={"bos_token": "<s>", "add_bos_token": False})
    assert resolve_boundaries(off, eos_token="</s>").bos_id is None


def test_bos_is_added_where_the_settings_say_so() -> None:
    """Case Q16."""
    settings = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    assert resolve_boundaries(define(BOS, EOS, settings=settings)) == Boundaries(1, 2)


@pytest.mark.parametrize(
    "processor",
    [
        TEMPLATE,
        {"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]},
        {"type": "BertProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]},
        {"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]},
    ],
)
def test_bos_is_added_where_the_post_processor_adds_it(processor: dict[str, Any]) -> None:
    """Case Q16."""
    definition = define(BOS, EOS, processor=processor)
    assert resolve_boundaries(definition, eos_token="</s>") == Boundaries(1, 2)
    assert resolve_boundaries(definition, eos_token="</s>", add_bos=False) == Boundaries(None, 2)


@pytest.mark.parametrize(
    "processor",
    [
        None,
        BEHIND,
        {"type": "ByteLevel"},
        {"type": "Sequence", "processors": []},
        {"type": "TemplateProcessing", "single": [], "special_tokens": {}},
    ],
)
def test_bos_is_not_added_where_the_post_processor_adds_nothing_in_front(processor: Any) -> None:
    assert resolve_boundaries(define(EOS, processor=processor)).bos_id is None


def test_bos_that_cannot_be_told_is_an_error_that_lists_the_control_tokens() -> None:
    message = refusal(define(BOS, EOS), eos_token="</s>", add_bos=True)
    assert "tokenizer.bos_token" in message
    assert "'<s>' (1), '</s>' (2)" in message


def test_a_configured_bos_has_to_be_a_control_token() -> None:
    options = {"eos_token": "</s>", "add_bos": True}
    assert resolve_boundaries(define(BOS, EOS), bos_token="<s>", **options).bos_id == 1
    assert "ordinary token" in refusal(define(BOS, EOS), bos_token="a", **options)
    assert "not in the vocabulary" in refusal(define(BOS, EOS), bos_token="<bos>", **options)


def test_a_configured_bos_goes_before_that_of_settings_and_post_processor() -> None:
    definition = define(BOS, EOS, PAD, processor=TEMPLATE, settings={"bos_token": "<s>"})
    assert resolve_boundaries(definition, eos_token="</s>", bos_token="<pad>").bos_id == 0


def test_the_id_zero_is_an_id() -> None:
    found = resolve_boundaries(define(PAD), add_bos=True, bos_token="<pad>")
    assert found == Boundaries(0, 0)
    assert found.count == 2
    assert Boundaries(None, 0).count == 1
    assert Boundaries().count == 0
