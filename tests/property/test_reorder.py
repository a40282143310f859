"""The reorder stage: final rows, what was left out, and positions, against lists."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from prep.pipeline.messages import Position
from prep.pipeline.reorder import PlacedBlock, Reorder

if TYPE_CHECKING:
    from collections.abc import Sequence


def place(corpus: Any, draw: Any, start: Position | None = None) -> list[PlacedBlock]:
    start = start or Position()
    return list(Reorder(corpus.names, corpus.layout, start).place(corpus.blocks(draw, start)))


def joined(model: Any, blocks: Sequence[PlacedBlock]) -> list[Any]:
    return [item for block in blocks for item in model.placed_items(block)]


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_rows_and_drops_are_final_however_the_stream_is_cut(stream_model: Any, data: st.DataObject) -> None:
    corpus = data.draw(stream_model.corpora())
    assert joined(stream_model, place(corpus, data.draw)) == corpus.items()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_reading_again_from_any_document_gives_exactly_the_rest(
    stream_model: Any, data: st.DataObject
) -> None:
    corpus = data.draw(stream_model.corpora())
    items = corpus.items()
    begins = [place for place, item in enumerate(items) if item.record.reason is None]
    for begin, position in zip(begins, _positions(place(corpus, data.draw)), strict=True):
        assert (position.file, position.next_row) == items[begin][:2]
        assert joined(stream_model, place(corpus, data.draw, position)) == items[begin:]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_position_of_a_resumed_stream_is_as_good_as_one_of_the_first(
    stream_model: Any, data: st.DataObject
) -> None:
    corpus = data.draw(stream_model.corpora())
    begins = [place for place, item in enumerate(corpus.items()) if item.record.reason is None]
    if not begins:
        return
    first = data.draw(st.integers(0, len(begins) - 1))
    positions = _positions(place(corpus, data.draw))
    resumed = _positions(place(corpus, data.draw, positions[first]))
    for begin, position in zip(begins[first:], resumed, strict=True):
        assert joined(stream_model, place(corpus, data.draw, position)) == corpus.items()[begin:]


def _positions(blocks: Sequence[PlacedBlock]) -> list[Position]:
    return [block.position(index) for block in blocks for index in range(block.documents.num_rows)]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_sample_stays_with_its_document(stream_model: Any, data: st.DataObject) -> None:
    corpus = data.draw(stream_model.corpora())
    blocks = place(corpus, data.draw)
    documents = [(block, index) for block in blocks for index in range(block.documents.num_rows)]
    start = data.draw(st.sampled_from([block.position(index) for block, index in documents] or [Position()]))
    for block in place(corpus, data.draw, start):
        if block.sample >= 0:
            tokens = tuple(block.documents.column("tokens")[block.sample].as_py())
            assert block.sample_text == repr(tokens).encode()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_reached_never_goes_back(stream_model: Any, data: st.DataObject) -> None:
    corpus = data.draw(stream_model.corpora())
    reorder = Reorder(corpus.names, corpus.layout, Position())
    reached = [reorder.reached]
    for block in reorder.place(corpus.blocks(data.draw)):
        reached.append(reorder.reached)
        if block.documents.num_rows:
            assert reorder.reached[0] >= block.documents.column("source_file")[-1].as_py()
    assert all(before <= after for before, after in pairwise(reached))
