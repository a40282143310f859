"""The shuffle stage against a list that is cut into blocks and sorted by hashed keys."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.pipeline.messages import Position
from prep.pipeline.reorder import Reorder
from prep.pipeline.shuffle import BlockShuffle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prep.pipeline.reorder import PlacedBlock


class Setting(NamedTuple):
    seed: int
    documents: int
    text_bytes: int


class Block(NamedTuple):
    """A block of the model: documents in their new order, and what was left out with them."""

    documents: list[Any]
    drops: list[Any]


settings_of_shuffle = st.builds(
    Setting,
    st.sampled_from((0, 1, 12345, 2**63 - 1)),
    st.integers(1, 7) | st.just(10**6),
    st.sampled_from((1, 10, 40, 100, 10**9)),
)


def expected_blocks(items: Sequence[Any], setting: Setting) -> list[Block]:
    """A block ends before the document that makes it too large; what is left out goes with the one before."""
    blocks: list[Block] = []
    size, early = 0, []
    for item in items:
        if item.record.reason is not None:
            (blocks[-1].drops if blocks else early).append(item)
            continue
        full = not blocks or len(blocks[-1].documents) == setting.documents
        if full or size + item.record.text_bytes > setting.text_bytes:
            blocks.append(Block([], early))
            size, early = 0, []
        blocks[-1].documents.append(item)
        size += item.record.text_bytes
    return [
        Block(_permuted(block.documents, setting.seed, number), block.drops)
        for number, block in enumerate(blocks)
    ] or ([Block([], early)] if early else [])


def _permuted(documents: Sequence[Any], seed: int, block: int) -> list[Any]:
    keys = [
        xxhash.xxh3_64_intdigest(struct.pack("<QqQ", seed, block, place)) for place in range(len(documents))
    ]
    return [documents[place] for place in sorted(range(len(documents)), key=keys.__getitem__)]


def shuffled(corpus: Any, draw: Any, setting: Setting, start: Position | None = None) -> list[PlacedBlock]:
    start = start or Position()
    stage = BlockShuffle(corpus.layout.schema(), *setting, start)
    placed = Reorder(corpus.names, corpus.layout, start).place(corpus.blocks(draw, start))
    return list(stage.shuffle(placed))


def found_blocks(model: Any, blocks: Sequence[PlacedBlock]) -> list[Block]:
    found = []
    for block in blocks:
        items = model.placed_items(block)
        documents = [item for item in items if item.record.reason is None]
        found.append(Block(documents, _left_out(items)))
    return found


@given(data=st.data(), setting=settings_of_shuffle)
@settings(max_examples=150, deadline=None)
def test_blocks_are_cut_and_permuted_however_the_stream_is_cut(
    stream_model: Any, data: st.DataObject, setting: Setting
) -> None:
    corpus = data.draw(stream_model.corpora())
    assert found_blocks(stream_model, shuffled(corpus, data.draw, setting)) == expected_blocks(
        corpus.items(), setting
    )


@given(data=st.data(), setting=settings_of_shuffle)
@settings(max_examples=60, deadline=None)
def test_reading_again_from_any_document_gives_exactly_the_rest_q32(
    stream_model: Any, data: st.DataObject, setting: Setting
) -> None:
    """And what was left out is in the ledger once: before the position, or in the rest."""
    corpus = data.draw(stream_model.corpora())
    whole = expected_blocks(corpus.items(), setting)
    done: list[Any] = []
    for number, block in enumerate(shuffled(corpus, data.draw, setting)):
        items = stream_model.placed_items(block)
        for index in range(block.documents.num_rows):
            if number == index == 0:  # no shard ends before the first document
                continue
            rest = found_blocks(stream_model, shuffled(corpus, data.draw, setting, block.position(index)))
            expected = [whole[number].documents[index:], *(later.documents for later in whole[number + 1 :])]
            assert [later.documents for later in rest] == expected
            place = items.index(whole[number].documents[index])
            before = _left_out([*done, *items[:place]])
            assert before + [item for later in rest for item in later.drops] == _left_out(corpus.items())
        done += items


def _left_out(items: Sequence[Any]) -> list[Any]:
    return [item for item in items if item.record.reason is not None]


@given(data=st.data(), setting=settings_of_shuffle)
@settings(max_examples=60, deadline=None)
def test_no_document_is_lost_or_comes_twice_q43(
    stream_model: Any, data: st.DataObject, setting: Setting
) -> None:
    corpus = data.draw(stream_model.corpora())
    blocks = found_blocks(stream_model, shuffled(corpus, data.draw, setting))
    found = [item for block in blocks for part in block for item in part]
    assert sorted(item[:2] for item in found) == [item[:2] for item in corpus.items()]
