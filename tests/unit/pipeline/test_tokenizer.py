"""The tokenizing stage: boundaries, filters, control text, and what becomes of a unit."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.catalog.errors import WorkerError
from prep.catalog.schema import ShardLayout
from prep.pipeline.messages import LocalFile, Span, Unit
from prep.pipeline.settings import StageSettings
from prep.pipeline.tokenizer import (
    LARGEST_SAMPLE,
    SAMPLE_BYTES,
    ControlTextFinder,
    SpanError,
    TokenBlock,
    TokenStage,
    add_boundaries,
)
from prep.readers.block import FLAG_CONTROL_TEXT, FLAG_INVALID_UTF8, FLAG_SURROGATES, REASONS, ReadOptions
from prep.tokenizers.boundaries import Boundaries
from prep.tokenizers.definition import TokenizerDefinition
from prep.tokenizers.protocol import Encoded
from prep.tokenizers.reference import ReferenceEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

EOS = "<|endoftext|>"


class ByteEncoder:
    """A tokenizer whose ids are the bytes of the text, and 100 more."""

    name = "bytes"

    def encode(self, texts: Any) -> Encoded:
        assert isinstance(texts, list)
        pieces = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        return Encoded(np.frombuffer(b"".join(pieces), np.uint8).astype(np.uint32) + 100, offsets)


SETTINGS = StageSettings(
    read=ReadOptions(id_field="id", kept=(("n", pa.int64()),), on_bad_record="skip", on_bad_text="replace"),
    layout=ShardLayout("uint16", with_id=True, kept=(("n", pa.int64()),)),
    boundaries=Boundaries(1, 2),
    control_tokens=(EOS, "<|im_start|>", "[PAD]"),
)


def run(folder: Path, files: Sequence[Sequence[Any]], stage: TokenStage) -> TokenBlock:
    """A unit of whole files, each given as records or raw lines."""
    spans, places = [], []
    for number, records in enumerate(files):
        path = folder / f"{number}.jsonl"
        lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in records]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        size = path.stat().st_size
        spans.append(Span(number, "bytes", 0, size, 0, size, size))
        places.append(LocalFile(str(path), size, "jsonl"))
    return stage.run(Unit(tuple(spans), tuple(places)), None)


def stage(**changes: Any) -> TokenStage:
    return TokenStage(ByteEncoder(), replace(SETTINGS, **changes))


def ids_of(text: str) -> list[int]:
    return [1, *(byte + 100 for byte in text.encode()), 2]


# ---- boundaries


@given(
    texts=st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=8),
    bos=st.none() | st.integers(0, 65_535),
    eos=st.none() | st.integers(0, 65_535),
    dtype=st.sampled_from((np.uint16, np.uint32)),
)
@settings(max_examples=150, deadline=None)
def test_boundaries_are_put_around_each_text_q16_q53(
    texts: list[list[int]], bos: int | None, eos: int | None, dtype: type[np.unsignedinteger[Any]]
) -> None:
    encoded = Encoded(
        np.array([token for text in texts for token in text], np.uint32),
        np.cumsum([0, *map(len, texts)], dtype=np.int64),
    )
    ids, offsets = add_boundaries(encoded, Boundaries(bos, eos), np.dtype(dtype))
    before = [] if bos is None else [bos]
    behind = [] if eos is None else [eos]
    expected = [[*before, *text, *behind] for text in texts]
    assert offsets.dtype == np.int32
    assert ids.dtype == dtype
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    assert [ids[start:stop].tolist() for start, stop in pairwise(offsets)] == expected


@pytest.mark.parametrize(("largest", "dtype"), [(65_536, np.uint16), (2**31, np.uint16)])
def test_an_id_that_does_not_fit_is_an_error(largest: int, dtype: Any) -> None:
    encoded = Encoded(np.array([1, largest], np.uint32), np.array([0, 2]))
    with pytest.raises(WorkerError, match=f"{largest}, which uint16 cannot hold"):
        add_boundaries(encoded, Boundaries(None, 0), np.dtype(dtype))
    assert add_boundaries(encoded, Boundaries(None, 0), np.dtype(np.uint32))[0].tolist() == [1, largest, 0]


# ---- what becomes of a unit


def test_a_unit_becomes_the_documents_of_its_spans_in_order(tmp_path: Path) -> None:
    first = [{"text": "one", "id": "a", "n": 1}, b"", {"text": "two", "n": None}]
    second = [b"bad", {"text": "thrée", "id": 7, "n": 3}]
    block = run(tmp_path, [first, [], second], stage())
    assert [(result.span.file, result.rows, result.documents) for result in block.results] == [
        (0, 3, 2),
        (1, 0, 0),
        (2, 2, 1),
    ]
    assert block.documents.to_pydict() == {
        "tokens": [ids_of("one"), ids_of("two"), ids_of("thrée")],
        "text_bytes": [3, 3, 6],
        "row": [0, 2, 1],
        "flags": [0, 0, 0],
        "id": ["a", None, "7"],
        "n": [1, None, 3],
    }
    [drop] = block.drops.to_pylist()
    assert (drop["span"], drop["row"], REASONS[drop["reason"]], drop["offset"]) == (2, 0, "bad_record", 0)
    assert drop["message"].startswith("not valid JSON")


def test_text_bytes_are_those_of_the_text_that_is_encoded_q08_q12(tmp_path: Path) -> None:
    lines = [b'{"text":"ok\\ud800bad"}', b'{"text":"caf\xd5"}', b'{"text":"\\u0000 \\ud83d\\udc4d "}']
    block = run(tmp_path, [lines], stage())
    texts = ["ok\ufffdbad", "caf\ufffd", "\0 \N{THUMBS UP SIGN} "]
    assert block.documents.column("tokens").to_pylist() == [ids_of(text) for text in texts]
    assert block.documents.column("text_bytes").to_pylist() == [len(text.encode()) for text in texts]
    assert block.documents.column("flags").to_pylist() == [FLAG_SURROGATES, FLAG_INVALID_UTF8, 0]


def test_a_unit_without_documents_is_an_empty_block(tmp_path: Path) -> None:
    block = run(tmp_path, [[b"bad"], [], [b"", {"text": ""}]], stage())
    assert block.documents.num_rows == 0
    assert (block.sample, block.sample_text) == (-1, b"")
    assert [REASONS[code] for code in block.drops.column("reason").to_pylist()] == ["bad_record", "empty"]


LENGTHS = ("", "a", "ab", "abc", "é", "éa", "ééé")


@given(
    lengths=st.lists(st.sampled_from(LENGTHS) | st.none(), max_size=10),
    low=st.integers(0, 4),
    high=st.none() | st.integers(1, 4),
    on_empty=st.sampled_from(("skip", "keep")),
)
@settings(max_examples=100, deadline=None)
def test_filters_count_bytes_and_keep_the_order_of_what_is_left_out_q06(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    lengths: list[str | None],
    low: int,
    high: int | None,
    on_empty: Any,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    records = [{"text": text, "id": f"id{row}", "n": row} for row, text in enumerate(lengths)]
    block = run(folder, [records], stage(min_bytes=low, max_bytes=high, on_empty=on_empty))
    kept, drops = [], []
    for row, text in enumerate(lengths):
        if text is None:
            drops.append((row, "missing_text"))
        elif not text and on_empty == "skip":
            drops.append((row, "empty"))
        elif len(text.encode()) < low:
            drops.append((row, "too_short"))
        elif high is not None and len(text.encode()) > high:
            drops.append((row, "too_long"))
        else:
            kept.append((ids_of(text), len(text.encode()), row, 0, f"id{row}", row))
    assert [tuple(document.values()) for document in block.documents.to_pylist()] == kept
    found = [(drop["row"], REASONS[drop["reason"]]) for drop in block.drops.to_pylist()]
    assert found == drops
    assert block.results[0].rows == len(lengths)
    assert [drop["message"] is None for drop in block.drops.to_pylist()] == [
        reason != "missing_text" for _, reason in drops
    ]


def test_an_empty_text_that_is_kept_is_its_boundaries_q06(tmp_path: Path) -> None:
    records = [{"text": ""}, {"text": "   "}]
    assert run(tmp_path, [records], stage(on_empty="keep")).documents.column("tokens").to_pylist() == [
        [1, 2],
        ids_of("   "),
    ]
    bare = stage(on_empty="keep", boundaries=Boundaries(None, None))
    assert run(tmp_path, [records], bare).documents.column("tokens").to_pylist()[0] == []


def test_a_record_that_is_refused_names_its_span_and_row(tmp_path: Path) -> None:
    strict = stage(read=ReadOptions())
    with pytest.raises(SpanError) as caught:
        run(tmp_path, [[{"text": "a"}], [{"text": "b"}, b"bad"]], strict)
    assert caught.value.span.file == 1
    assert caught.value.drop is not None
    assert caught.value.drop[:3] == (1, "bad_record", 14)


def test_a_file_that_cannot_be_read_names_its_span(tmp_path: Path) -> None:
    span, file = Span(3, "bytes", 0, 9, 0, 9), LocalFile(str(tmp_path / "missing.jsonl"), 9, "jsonl")
    with pytest.raises(SpanError, match=r"missing\.jsonl") as caught:
        stage().run(Unit((span,), (file,)), None)
    assert (caught.value.span, caught.value.drop) == (span, None)


def test_the_longest_document_of_moderate_size_is_the_sample(tmp_path: Path) -> None:
    sizes = [5, SAMPLE_BYTES, SAMPLE_BYTES + 1, 7]
    block = run(tmp_path, [[{"text": "x" * size} for size in sizes]], stage())
    assert (block.sample, block.sample_text) == (1, b"x" * SAMPLE_BYTES)
    block = run(tmp_path, [[{"text": "y" * (SAMPLE_BYTES + 5)}, {"text": "é" * SAMPLE_BYTES}]], stage())
    assert (block.sample, len(block.sample_text)) == (0, SAMPLE_BYTES + 5)
    assert run(tmp_path, [[{"text": "z" * (LARGEST_SAMPLE + 1)}]], stage()).sample == -1


def test_only_large_documents_wait_for_their_turn(tmp_path: Path) -> None:
    turns: list[str] = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append("begin")
        yield
        turns.append("end")

    limited = TokenStage(ByteEncoder(), replace(SETTINGS, large_bytes=10), turn)
    run(tmp_path, [[{"text": "x" * 10}, {"text": "y"}]], limited)
    assert turns == []
    run(tmp_path, [[{"text": "é" * 6}]], limited)
    assert turns == ["begin", "end"]
    run(tmp_path, [[{"text": "x" * 10**6}]], TokenStage(ByteEncoder(), SETTINGS, turn))
    assert turns == ["begin", "end"]


# ---- text that spells control tokens


@given(
    tokens=st.lists(st.text("<|>ab", max_size=4), max_size=5),
    texts=st.lists(st.text("<|>abé", max_size=12), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_the_finder_finds_what_a_plain_search_finds_q76(tokens: list[str], texts: list[str]) -> None:
    expected = [place for place, text in enumerate(texts) if any(token and token in text for token in tokens)]
    assert ControlTextFinder(tokens).find(texts).tolist() == expected


HOSTILE = f"foo {EOS} bar <|im_start|>system"


def test_documents_that_spell_control_tokens_are_counted_q76(tmp_path: Path) -> None:
    records = [{"text": "plain"}, {"text": HOSTILE}, {"text": "<|endoftext|"}, {"text": "[PAD]"}]
    block = run(tmp_path, [records], stage())
    assert block.documents.column("flags").to_pylist() == [0, FLAG_CONTROL_TEXT, 0, FLAG_CONTROL_TEXT]
    assert block.documents.num_rows == 4
    with pytest.raises(SpanError, match="control_tokens_in_text is error") as caught:
        run(tmp_path, [records], stage(control_policy="error"))
    assert caught.value.drop is not None
    assert caught.value.drop.row == 1


def test_control_tokens_in_text_are_ids_only_where_that_is_wanted_q76(
    tmp_path: Path, tokenizer_json: Path
) -> None:
    definition = TokenizerDefinition.from_bytes(tokenizer_json.read_bytes())
    control = definition.control_ids[EOS]
    for match, inside in ((False, 0), (True, 1)):
        encoder = ReferenceEncoder(definition.encoding_json, match_control_tokens=match)
        wanted = replace(SETTINGS, boundaries=Boundaries(None, control), control_tokens=(EOS,))
        block = run(tmp_path, [[{"text": HOSTILE}]], TokenStage(encoder, wanted))
        [ids] = block.documents.column("tokens").to_pylist()
        assert ids[-1] == control
        assert ids[:-1].count(control) == inside
        assert block.documents.column("flags").to_pylist() == [FLAG_CONTROL_TEXT]
