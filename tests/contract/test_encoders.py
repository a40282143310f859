"""What every tokenizer backend must do. A new backend is one more class at the end of this module."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prep.tokenizers.definition import TokenizerDefinition
from prep.tokenizers.probes import probe_ids, probe_strings
from prep.tokenizers.reference import CALL_CHARACTERS, ReferenceEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prep.tokenizers.protocol import Encoded, Encoder

EOS = "<|endoftext|>"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
HOSTILE = st.lists(
    st.sampled_from(
        [EOS, EOS[:-1], "the", " ", "\r\n", "\x00", "e\u0301", "\U0001f469\u200d", "123456", "ไทย", "<fn>"]
    ),
    max_size=8,
).map("".join)
REAL = ("gpt2.json", "cl100k.json", "deepseek.json", "anthropic.json", "minilm.json")
once_for_all_texts = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def lists(encoded: Encoded) -> list[list[int]]:
    edges = encoded.offsets.tolist()
    return [encoded.ids[start:stop].tolist() for start, stop in pairwise(edges)]


def library(content: dict[str, Any]) -> Callable[[str], list[int]]:
    """Hugging Face `tokenizers`, called as a user would."""
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.fixture(scope="module")
def content(tokenizer_json: Path) -> dict[str, Any]:
    return dict(json.loads(tokenizer_json.read_bytes()))


@pytest.fixture(scope="module")
def expect(content: dict[str, Any]) -> Callable[[str], list[int]]:
    """Gives the ids that a text must have."""
    return library(content)


class EncoderContract(ABC):
    @abstractmethod
    def make(self, encoding_json: str, *, match_control_tokens: bool = False) -> Encoder: ...

    @pytest.fixture
    def encoder(self, content: dict[str, Any]) -> Encoder:
        return self.make(json.dumps(content))

    def test_the_result_is_flat_with_one_offset_more_than_texts(self, encoder: Encoder) -> None:
        found = encoder.encode(pa.array(["the quick", "", "fox"]))
        assert (found.ids.dtype, found.offsets.dtype) == (np.uint32, np.int64)
        assert found.ids.shape == (found.offsets[-1],)
        assert found.offsets.shape == (4,)
        assert (found.offsets[0], found.offsets[1]) == (0, found.offsets[2])

    @pytest.mark.parametrize("texts", [[], [""], ["", ""]])
    def test_nothing_gives_nothing(self, encoder: Encoder, texts: list[str]) -> None:
        found = encoder.encode(pa.array(texts, pa.string()))
        assert found.ids.tolist() == []
        assert found.offsets.tolist() == [0] * (len(texts) + 1)

    @once_for_all_texts
    @given(st.lists(TEXTS | HOSTILE, max_size=6))
    @example(["\x00", "a\x00b", EOS, "\r\n", "\u0378", "\U0010ffff"])
    def test_ids_are_those_of_the_library(
        self, encoder: Encoder, expect: Callable[[str], list[int]], texts: list[str]
    ) -> None:
        expected = [expect(text) for text in texts]
        assert lists(encoder.encode(pa.array(texts, pa.string()))) == expected

    @once_for_all_texts
    @given(st.lists(TEXTS | HOSTILE, min_size=1, max_size=8), st.data())
    def test_a_text_has_the_same_ids_in_every_company(
        self, encoder: Encoder, texts: list[str], data: st.DataObject
    ) -> None:
        start = data.draw(st.integers(0, len(texts) - 1))
        whole = pa.array(texts, pa.string())
        assert lists(encoder.encode(whole.slice(start))) == lists(encoder.encode(whole))[start:]

    def test_texts_may_be_a_list(self, encoder: Encoder) -> None:
        texts = ["the", "", f"{EOS} naïve"]
        assert lists(encoder.encode(texts)) == lists(encoder.encode(pa.array(texts)))

    def test_ids_are_the_same_again_after_other_texts(self, encoder: Encoder) -> None:
        probes = probe_strings([EOS])
        before = probe_ids(encoder, probes)
        encoder.encode(pa.array([f"word{number} " * 20 for number in range(500)]))
        assert probe_ids(encoder, probes) == before

    def test_more_text_than_one_call_takes_loses_nothing(self, encoder: Encoder) -> None:
        texts = ["the quick brown fox " * 600] * 60 + ["", "a lazy dog"]
        assert sum(map(len, texts)) > 2 * CALL_CHARACTERS
        found = lists(encoder.encode(pa.array(texts)))
        assert [ids == found[0] for ids in found] == [True] * 60 + [False, False]
        assert found[-1] == lists(encoder.encode(pa.array(texts[-1:])))[0]

    def test_a_text_longer_than_one_call_is_encoded_whole(
        self, encoder: Encoder, expect: Callable[[str], list[int]]
    ) -> None:
        text = "the quick brown fox 12345 naïve " * (CALL_CHARACTERS // 16)
        assert lists(encoder.encode(pa.array([text])))[0] == expect(text)

    @pytest.mark.parametrize("text", [EOS, f"foo {EOS} bar", f"{EOS}{EOS}", f"x{EOS}"])
    def test_the_text_of_a_control_token_is_ordinary_text(self, encoder: Encoder, text: str) -> None:
        """Case Q76."""
        assert 0 not in encoder.encode(pa.array([text])).ids.tolist()

    def test_control_tokens_become_themselves_where_asked_for(self, content: dict[str, Any]) -> None:
        encoder = self.make(json.dumps(content), match_control_tokens=True)
        found = lists(encoder.encode(pa.array([EOS, f"the{EOS}the", EOS[:-1]])))
        assert found[0] == [0]
        assert found[1].count(0) == 1
        assert 0 not in found[2]

    def test_padding_truncation_and_post_processor_of_the_file_are_off(
        self, content: dict[str, Any], expect: Callable[[str], list[int]]
    ) -> None:
        template = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": EOS, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {EOS: {"id": EOS, "ids": [0], "tokens": [EOS]}},
        }
        padding = {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": EOS,
        }
        truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
        noisy = {**content, "post_processor": template, "padding": padding, "truncation": truncation}
        texts = pa.array(["the quick brown fox jumps", "a"])
        found = [
            lists(
                self.make(TokenizerDefinition.from_bytes(json.dumps(given).encode()).encoding_json).encode(
                    texts
                )
            )
            for given in (noisy, content)
        ]
        assert found[0] == found[1] == list(map(expect, texts.to_pylist()))

    @pytest.mark.parametrize("options", [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}])
    def test_added_tokens_that_control_nothing_stay_active(
        self, content: dict[str, Any], options: dict[str, bool]
    ) -> None:
        number = 1 + max(content["model"]["vocab"].values())
        plain = {
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
            "normalized": False,
            "special": False,
        }
        added = [*content["added_tokens"], {"id": number, "content": "<fn>", **plain, **options}]
        extended = {**content, "added_tokens": added}
        texts = ["a <fn> b", "<fn>", "<fn>the", "the<fn><fn>", " <fn>\n ", "_<fn>_", "<f<fn>n>"]
        found = lists(self.make(json.dumps(extended)).encode(pa.array(texts)))
        assert found == list(map(library(extended), texts))
        assert number in found[0]

    def test_a_normalizer_is_applied_or_refused(self, content: dict[str, Any]) -> None:
        texts = ["The É e\u0301 ﬁ", "ABC"]
        for kind in ("NFC", "Lowercase"):
            changed = {**content, "normalizer": {"type": kind}}
            found = lists(self.make(json.dumps(changed)).encode(pa.array(texts)))
            assert found == list(map(library(changed), texts))

    @pytest.mark.parametrize("name", REAL)
    def test_real_tokenizers_have_the_ids_of_the_library_on_every_probe(
        self, test_data: Path, name: str
    ) -> None:
        content = json.loads((test_data / "tokenizers" / name).read_bytes())
        content.update(truncation=None, padding=None, post_processor=None)
        control = [token["content"] for token in content["added_tokens"] if token["special"]]
        probes = probe_strings(control)
        encoder = self.make_or_skip(json.dumps(content))
        assert probe_ids(encoder, probes) == list(map(library(content), probes))

    def make_or_skip(self, encoding_json: str) -> Encoder:
        return self.make(encoding_json)


class TestReference(EncoderContract):
    def make(self, encoding_json: str, *, match_control_tokens: bool = False) -> Encoder:
        return ReferenceEncoder(encoding_json, match_control_tokens=match_control_tokens)


class TestFastokens(EncoderContract):
    def make(self, encoding_json: str, *, match_control_tokens: bool = False) -> Encoder:
        pytest.importorskip("fastokens", reason="the extra `fast` is not installed")
        from prep.tokenizers.fastokens import FastokensEncoder

        return FastokensEncoder(encoding_json, match_control_tokens=match_control_tokens)

    def make_or_skip(self, encoding_json: str) -> Encoder:
        from prep.catalog.errors import ConfigError

        try:
            return self.make(encoding_json)
        except ConfigError as error:
            pytest.skip(str(error))
