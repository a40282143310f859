"""A tokenizer as data: what is taken from its files, and what is refused."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import ConfigError
from prep.tokenizers.definition import FILE, SETTINGS, TokenizerDefinition, dump_settings, load_definition

if TYPE_CHECKING:
    from pathlib import Path

EOS = {"id": 7, "content": "</s>", "special": True}
PLAIN = {"id": 9, "content": "<fn>", "special": False}


def content(**fields: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 3}, "merges": []},
        "added_tokens": [EOS, PLAIN],
        "post_processor": {"type": "ByteLevel"},
        "padding": None,
        "truncation": None,
        **fields,
    }


def define(**fields: Any) -> TokenizerDefinition:
    return TokenizerDefinition.from_bytes(json.dumps(content(**fields)).encode())


def test_padding_and_truncation_are_no_part_of_a_tokenizer() -> None:
    """Case Q35: they change between calls, and change no document's ids."""
    padded = define(padding={"strategy": {"Fixed": 8}}, truncation={"max_length": 4})
    assert padded.canonical == define().canonical
    assert "padding" not in padded.content
    assert "truncation" not in padded.content


def test_the_canonical_form_does_not_depend_on_how_the_file_is_written() -> None:
    fields = content()
    shuffled = json.dumps(dict(reversed(fields.items())), indent=4).encode()
    assert TokenizerDefinition.from_bytes(shuffled).canonical == define().canonical


@pytest.mark.parametrize("field", ["model", "added_tokens", "post_processor", "normalizer"])
def test_whatever_else_differs_is_another_tokenizer(field: str) -> None:
    changed = define(**{field: {"vocab": {"a": 1}} if field == "model" else []})
    assert changed.canonical != define().canonical


def test_backends_get_no_post_processor() -> None:
    loaded = json.loads(define().encoding_json)
    assert loaded["post_processor"] is None
    assert {name: loaded[name] for name in ("model", "added_tokens")} == {
        name: content()[name] for name in ("model", "added_tokens")
    }


def test_control_tokens_are_the_added_tokens_that_are_special() -> None:
    assert define().control_ids == {"</s>": 7}
    assert define(added_tokens=None).control_ids == {}
    assert define(added_tokens=[PLAIN]).control_ids == {}


@pytest.mark.parametrize(
    ("model", "added", "largest"),
    [
        ({"vocab": {"a": 0, "b": 3}}, [EOS, PLAIN], 9),
        ({"vocab": {"a": 0, "b": 30}}, [EOS, PLAIN], 30),
        ({"vocab": {"a": 0, "b": 3}}, None, 3),
        ({"vocab": [["a", -1.0], ["b", -2.0], ["c", -3.0]]}, [], 2),
        ({"vocab": {}}, [EOS], 7),
    ],
)
def test_the_largest_id_is_over_vocabulary_and_added_tokens(
    model: dict[str, Any], added: Any, largest: int
) -> None:
    assert define(model=model, added_tokens=added).largest_id == largest


@pytest.mark.parametrize("vocabulary", [{"a": 0, "b": 1}, [["a", -1.0], ["b", -2.0]]])
def test_a_token_has_its_id_whatever_the_kind_of_model(vocabulary: Any) -> None:
    definition = define(model={"vocab": vocabulary})
    found = [definition.id_of(text) for text in ("a", "b", "</s>", "<fn>", "none")]
    assert found == [0, 1, 7, 9, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("</s>", "</s>"), ({"content": "</s>", "lstrip": False}, "</s>"), (None, None), (5, None), ({}, None)],
)
def test_named_tokens_are_texts_or_objects_with_one(value: Any, expected: str | None) -> None:
    settings = json.dumps({"eos_token": value}).encode()
    definition = TokenizerDefinition.from_bytes(json.dumps(content()).encode(), settings)
    assert definition.named_token("eos_token") == expected


def test_many_control_tokens_are_shown_shortened() -> None:
    added = [{"id": number, "content": f"<{number}>", "special": True} for number in range(100)]
    shown = define(added_tokens=added).shown_control_tokens()
    assert "'<0>' (0)" in shown
    assert shown.endswith("and 70 more")
    assert define(added_tokens=[]).shown_control_tokens() == "none"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"model": 5}', b"\xff\xfe"])
def test_what_is_no_tokenizer_is_refused_with_its_origin(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"x\.json: tokenizer\.path: not a tokenizer\.json"):
        TokenizerDefinition.from_bytes(data, None, "x.json")


def test_a_folder_gives_the_tokenizer_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(content()))
    assert load_definition(str(tmp_path)).settings == {}
    (tmp_path / SETTINGS).write_text('{"eos_token": "</s>"}')
    for path in (tmp_path, tmp_path / FILE):
        loaded = load_definition(str(path))
        assert loaded.named_token("eos_token") == "</s>"
        assert loaded.origin == str(tmp_path / FILE)
    assert json.loads(dump_settings(load_definition(str(tmp_path)))) == {"eos_token": "</s>"}


def test_settings_beside_a_file_of_another_name_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "gpt2.json").write_text(json.dumps(content()))
    (tmp_path / SETTINGS).write_text('{"eos_token": "</s>"}')
    assert load_definition(str(tmp_path / "gpt2.json")).settings == {}


def test_damaged_settings_are_refused_by_their_own_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(content()))
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(ConfigError, match=SETTINGS):
        load_definition(str(tmp_path))


def test_settings_that_are_no_mapping_say_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(content()))
    (tmp_path / SETTINGS).write_text("[]")
    assert load_definition(str(tmp_path)).settings == {}


@pytest.mark.parametrize("name", ["cl100k_base.tiktoken", "spiece.model", "merges.bpe", "vocab.txt"])
def test_a_bare_vocabulary_is_refused_and_the_missing_part_is_named(tmp_path: Path, name: str) -> None:
    """Case Q13."""
    (tmp_path / name).write_bytes(b"IQ== 0\nIg== 1\n")
    with pytest.raises(ConfigError) as raised:
        load_definition(str(tmp_path / name))
    assert "how text is split" in str(raised.value)
    assert name in str(raised.value)


def test_a_bare_vocabulary_of_any_name_is_refused(tmp_path: Path) -> None:
    """Case Q13."""
    for name, text in (("cl100k_base", "IQ== 0\nIg== 1\n"), ("vocab.json", '{"a": 0, "b": 1}')):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=r"not a tokenizer\.json"):
            load_definition(str(tmp_path / name))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json: tokenizer\.path: cannot be read"):
        load_definition(str(tmp_path))


@pytest.mark.parametrize("path", ["no/such/place/tokenizer.json", "/nowhere", "missing.json", "a b", "x/y/z"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        load_definition(path)


def test_a_hub_id_without_the_hub_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"tokenloom\[hub\]"):
        load_definition("owner/name")
