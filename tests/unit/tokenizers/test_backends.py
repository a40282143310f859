"""Finding a backend by its name, and what is said where it cannot be used."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models

from prep.catalog.errors import ConfigError, RefusedError
from prep.pipeline.inline import load_encoder
from prep.pipeline.runner import first_choice
from prep.pipeline.settings import EncoderSettings
from prep.tokenizers.backends import FAST, REFERENCE, make_encoder, version_of
from prep.tokenizers.fastokens import FastokensEncoder
from prep.tokenizers.reference import ReferenceEncoder

if TYPE_CHECKING:
    from pathlib import Path

needs_fast = pytest.mark.skipif(find_spec("fastokens") is None, reason="the extra `fast` is not installed")


def unigram() -> str:
    return str(Tokenizer(models.Unigram([("<unk>", 0.0), ("Hello", -1.0)], 0, byte_fallback=False)).to_str())


def without_the_space(tokenizer_json: Path) -> str:
    """A byte-level BPE in which one of the 256 bytes has no token."""
    content = json.loads(tokenizer_json.read_bytes())
    vocabulary = [text for text in content["model"]["vocab"] if "Ġ" not in text]
    content["model"]["vocab"] = {text: number for number, text in enumerate(vocabulary)}
    content["model"]["merges"] = []
    return json.dumps(content)


def test_backends_are_made_by_name(tokenizer_json: Path) -> None:
    made = make_encoder(REFERENCE, tokenizer_json.read_text(encoding="utf-8"))
    assert isinstance(made, ReferenceEncoder)
    assert version_of(REFERENCE)


@needs_fast
def test_the_fast_backend_is_made_by_name_and_has_a_version(tokenizer_json: Path) -> None:
    made = make_encoder(FAST, tokenizer_json.read_text(encoding="utf-8"))
    assert isinstance(made, FastokensEncoder)
    assert version_of(FAST)
    assert os.environ["FASTOKENS_BPE_THREADS"] == "1"


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="expected one of tokenizers, fastokens, found 'other'"):
        make_encoder("other", "{}")


def test_a_fast_backend_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tokenizer_json: Path
) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    with pytest.raises(ConfigError, match=r"tokenloom\[fast\]"):
        make_encoder(FAST, tokenizer_json.read_text(encoding="utf-8"))


@needs_fast
def test_a_tokenizer_that_the_fast_backend_does_not_support_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"does not support this tokenizer: .*Unigram"):
        make_encoder(FAST, unigram())


@needs_fast
def test_a_backend_that_fails_on_the_probes_is_a_reason_not_to_take_it(tokenizer_json: Path) -> None:
    settings = EncoderSettings(FAST, match_control_tokens=False, probes=("x", "the quick"))
    _, ready = load_encoder(settings, without_the_space(tokenizer_json))
    assert ready.error


def test_the_first_choice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_choice("tokenizers", ()) == (REFERENCE, "the configuration says so")
    assert first_choice("auto", (FAST,))[0] == REFERENCE
    with pytest.raises(RefusedError, match="gave other ids"):
        first_choice(FAST, (FAST,))
    monkeypatch.setitem(sys.modules, "fastokens", None)
    assert first_choice("fastokens", ()) == (FAST, "the configuration says so")
