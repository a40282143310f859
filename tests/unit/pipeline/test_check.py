"""The check of a fast backend while a job runs: it finds what differs, and costs little."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from prep.catalog.columns import list_array
from prep.catalog.errors import IntegrityError
from prep.pipeline.check import TEXT_PER_CHECKED_BYTE, EncoderContradictedError, SampleCheck
from prep.tokenizers.boundaries import Boundaries
from prep.tokenizers.definition import TokenizerDefinition
from prep.tokenizers.reference import ReferenceEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prep.catalog.schema import ShardLayout
    from prep.pipeline.reorder import PlacedBlock

NAMES = ["web/a.jsonl", "web/b.jsonl"]
TEXT = "the quick brown fox, naïve 東京\n"


@pytest.fixture(scope="module")
def reference(tokenizer_json: Path) -> ReferenceEncoder:
    return ReferenceEncoder(TokenizerDefinition.from_bytes(tokenizer_json.read_bytes()).encoding_json)


def block(
    ids: Sequence[Sequence[int]], layout: ShardLayout, place: Any, text: str = TEXT, sample: int = 0
) -> PlacedBlock:
    """Documents with these ids in file 1 from row 10 on, one of which rides along with its text."""
    placed = place([0] * len(ids), file=1, row=10)
    offsets = np.cumsum([0, *map(len, ids)]).astype(np.int32)
    tokens = np.array([token for row in ids for token in row], np.uint16)
    columns = [list_array(tokens, offsets, layout.schema().field("tokens").type)]
    columns += [pa.array([len(text.encode())] * len(ids), pa.uint32()), *placed.documents.columns[2:]]
    documents = pa.RecordBatch.from_arrays(columns, schema=layout.schema())
    return replace(
        placed, documents=documents, sample=sample, sample_text=text.encode() if sample >= 0 else b""
    )


@pytest.mark.parametrize(
    "boundaries", [Boundaries(), Boundaries(1, None), Boundaries(None, 2), Boundaries(1, 2)], ids=str
)
def test_equal_ids_pass_whatever_is_put_around_them_q14(
    reference: ReferenceEncoder, layout: ShardLayout, place: Any, boundaries: Boundaries
) -> None:
    ids = reference.encode([TEXT]).ids.tolist()
    around = [
        *([1] if boundaries.bos_id is not None else []),
        *ids,
        *([2] if boundaries.eos_id is not None else []),
    ]
    check = SampleCheck(reference, boundaries, NAMES, lambda: 0)
    given = [block([[7], around, []], layout, place, sample=1)]
    [passed] = check.watch(given)
    assert passed is given[0]
    assert (check.checked_documents, check.checked_bytes) == (1, len(TEXT.encode()))


def _changed(ids: list[int]) -> list[int]:
    return [*ids[:4], ids[4] + 1, *ids[5:]]


@pytest.mark.parametrize(
    ("change", "position"),
    [(_changed, 4), (lambda ids: ids[:-1], -1), (lambda ids: [*ids, 9], 10**6), (lambda _: [], 0)],
    ids=["changed", "shorter", "longer", "nothing"],
)
def test_a_difference_names_document_position_and_both_lists_q14(
    reference: ReferenceEncoder, layout: ShardLayout, place: Any, change: Any, position: int
) -> None:
    expected = reference.encode([TEXT]).ids.tolist()
    found = change(expected)
    position = min(position % (len(expected) + 1) if position < 0 else position, len(expected))
    position -= change is not _changed and 0 < len(found) < len(expected)
    check = SampleCheck(reference, Boundaries(None, 0), NAMES, lambda: 0)
    watched = check.watch([block([[5, 0], [*found, 0]], layout, place, sample=1)])
    with pytest.raises(EncoderContradictedError) as caught:
        list(watched)
    message = str(caught.value)
    assert "web/b.jsonl: row 12:" in message
    assert f"from token {position} on" in message
    around = slice(max(0, position - 3), position + 5)
    assert f"expected {expected[around]} ({len(expected)} in all)" in message
    assert f"found {found[around]} ({len(found)} in all)" in message
    assert "--restart" in message
    assert isinstance(caught.value, IntegrityError)
    assert caught.value.exit_code == 4


def test_a_document_of_every_shard_is_checked_and_no_more_than_is_affordable(
    reference: ReferenceEncoder, layout: ShardLayout, place: Any
) -> None:
    ids = reference.encode([TEXT]).ids.tolist()
    size, shard, text_bytes, checked = len(TEXT.encode()), 0, 0, []
    check = SampleCheck(reference, Boundaries(), NAMES, lambda: shard)
    for number in range(400):
        shard = number // 100
        before = check.checked_documents
        assert len(list(check.watch([block([ids] * 50, layout, place)]))) == 1
        text_bytes += 50 * size
        if check.checked_documents > before:
            checked.append(number)
        # One for each shard, and as much as the text so far can pay for.
        assert check.checked_bytes <= size * (shard + 1) + text_bytes / TEXT_PER_CHECKED_BYTE
    assert {0, 100, 200, 300} <= set(checked)
    assert check.checked_bytes == size * check.checked_documents
    assert check.checked_documents > 4


def test_blocks_without_a_sample_pass(reference: ReferenceEncoder, layout: ShardLayout, place: Any) -> None:
    check = SampleCheck(reference, Boundaries(), NAMES, lambda: 0)
    given = [block([[1, 2, 3]], layout, place, sample=-1), place([])]
    found = list(check.watch(given))
    assert all(passed is placed for passed, placed in zip(found, given, strict=True))
    assert check.checked_documents == 0


def test_documents_whose_text_does_not_come_back_are_counted_q12(
    reference: ReferenceEncoder, layout: ShardLayout, place: Any
) -> None:
    check = SampleCheck(reference, Boundaries(), NAMES, lambda: check.checked_documents)
    for text in (TEXT, " \x00 trailing  ", "\ufe30 ß"):
        list(check.watch([block([reference.encode([text]).ids.tolist()], layout, place, text)]))
    assert (check.checked_documents, check.lossy_documents) == (3, 0)
