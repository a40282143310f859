"""What the reference backend does beyond the contract of all backends."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer

from prep.catalog.errors import ConfigError
from prep.resolve import resolve
from prep.sources.listing import list_sources
from prep.tokenizers.definition import load_definition
from prep.tokenizers.reference import CALL_CHARACTERS, ReferenceEncoder, _parts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeConfig, WriteJsonl

EOS = "<|endoftext|>"


@pytest.fixture
def encoder(tokenizer_json: Path) -> ReferenceEncoder:
    return ReferenceEncoder(tokenizer_json.read_text(encoding="utf-8"))


def byte_fallback(**fields: Any) -> dict[str, Any]:
    """A BPE that claims byte fallback and has no pieces for bytes."""
    vocabulary = {
        text: number for number, text in enumerate(("H", "e", "l", "o", "w", "r", "d", "▁", "<unk>"))
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [],
            "byte_fallback": True,
            "unk_token": "<unk>",
            "fuse_unk": True,
        },
        **fields,
    }


def test_decoding_gives_the_text_with_its_control_tokens(encoder: ReferenceEncoder) -> None:
    text = "the naïve fox\r\n\x00  東京 \U0001f98a"
    ids = encoder.encode([text]).ids.tolist()
    assert encoder.decode(ids) == text
    assert encoder.decode([*ids, 0]) == text + EOS


def test_a_byte_level_tokenizer_gives_back_nul_spaces_and_line_ends(encoder: ReferenceEncoder) -> None:
    """Case Q12."""
    for text in ("\ufe30", "ß", "\x00", "\t", "trailing  ", "a\r\nb", "👨\u200d👩\u200d👧"):
        assert encoder.gives_back(text, encoder.encode([text]).ids.tolist())


def test_a_tokenizer_that_normalises_is_told_from_one_that_does_not(tokenizer_json: Path) -> None:
    """Case Q12."""
    content = {**json.loads(tokenizer_json.read_bytes()), "normalizer": {"type": "NFKC"}}
    encoder = ReferenceEncoder(json.dumps(content))
    assert not encoder.gives_back("ﬁ", encoder.encode(["ﬁ"]).ids.tolist())
    assert encoder.gives_back("fi", encoder.encode(["fi"]).ids.tolist())


def test_a_flag_that_the_vocabulary_does_not_support_changes_no_id() -> None:
    """Case Q14, second file."""
    encoder = ReferenceEncoder(json.dumps(byte_fallback()))
    expected = Tokenizer.from_str(json.dumps(byte_fallback())).encode("Hello world é").ids
    assert encoder.encode(["Hello world é"]).ids.tolist() == expected
    assert 8 in expected


@pytest.mark.parametrize("content", ["", "{}", "null", '{"model": {"type": "none"}}'])
def test_a_file_that_the_library_refuses_is_a_configuration_error(content: str) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.path"):
        ReferenceEncoder(content)


def test_threads_of_the_library_stay_off(encoder: ReferenceEncoder) -> None:
    assert encoder.name == "tokenizers"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1], [CALL_CHARACTERS], [CALL_CHARACTERS + 1, 1], [1, CALL_CHARACTERS * 2, 1], [40_000] * 20],
)
def test_parts_hold_every_text_once_in_order_and_are_small(sizes: list[int]) -> None:
    texts = [f"{number % 10}" * size for number, size in enumerate(sizes)]
    parts = list(_parts(texts))
    assert [text for part in parts for text in part] == texts
    assert all(len(part) == 1 or sum(map(len, part)) <= CALL_CHARACTERS for part in parts)


def test_a_control_token_to_which_the_library_gives_another_id_is_refused(
    make_config: MakeConfig, write_jsonl: WriteJsonl, tokenizer_json: Path, tmp_path: Path
) -> None:
    content = json.loads(tokenizer_json.read_bytes())
    content["added_tokens"].append({**content["added_tokens"][0], "content": "<eot>", "id": 60_000})
    path = tmp_path / "hole.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert Tokenizer.from_file(str(path)).token_to_id("<eot>") < 60_000  # the next free id
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    config = make_config(source, tokenizer={"path": str(path), "eos_token": "<eot>"})
    with pytest.raises(ConfigError, match="<eot>"):
        resolve(config, load_definition(str(path)), list_sources(config))
