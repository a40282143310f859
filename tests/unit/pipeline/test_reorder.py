"""The reorder stage: the words of its errors, and ids."""

from __future__ import annotations

import pyarrow as pa
import pytest

from prep.catalog.errors import InputError, WorkerError
from prep.catalog.schema import ShardLayout
from prep.pipeline.messages import Failed, Position, Span, SpanResult
from prep.pipeline.reorder import Reorder
from prep.pipeline.tokenizer import DROP_SCHEMA, TokenBlock, block_schema
from prep.readers.block import Drop

NAMES = ["web/a.jsonl", "web/b.jsonl.gz"]
LAYOUT = ShardLayout("uint16", with_id=True)


def block(span: Span, ids: list[str | None], rows: int | None = None) -> TokenBlock:
    """A span whose first rows are documents."""
    count = len(ids)
    columns = [
        pa.array([[7]] * count, block_schema(LAYOUT).field("tokens").type),
        pa.array([1] * count, pa.uint32()),
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.uint8()),
        pa.array(ids, pa.string()),
    ]
    documents = pa.RecordBatch.from_arrays(columns, schema=block_schema(LAYOUT))
    drops = pa.RecordBatch.from_pylist([], schema=DROP_SCHEMA)
    return TokenBlock((SpanResult(span, count if rows is None else rows, count),), documents, drops, -1, b"")


def lines(file: int, start: int, stop: int, row: int = -1) -> Span:
    return Span(file, "bytes", start, stop, row, stop - start)


def test_a_missing_id_is_the_file_and_the_row_q66() -> None:
    reorder = Reorder(NAMES, LAYOUT, Position())
    stream = [
        block(lines(0, 0, 10, 0), ["x", None], 5),
        block(lines(0, 10, 20), [None]),
        block(lines(1, 0, 9, 0), [None, "y"]),
    ]
    found = [placed.documents.column("id").to_pylist() for placed in reorder.place(stream)]
    assert found == [["x", "web/a.jsonl#1"], ["web/a.jsonl#5"], ["web/b.jsonl.gz#0", "y"]]


def test_a_record_s_error_says_file_row_and_byte_q01() -> None:
    drop = Drop(2, "bad_record", 123_456, "not valid JSON: Expecting value")
    failure = Failed(lines(0, 1000, 2000), drop, "", "input")
    reorder = Reorder(NAMES, LAYOUT, Position())
    with pytest.raises(InputError) as caught:
        list(reorder.place([block(lines(0, 0, 1000, 0), ["x"], 40), failure]))
    assert str(caught.value) == (
        "web/a.jsonl: row 43 (byte 123,456): bad_record: not valid JSON: Expecting value. "
        "Mend the record, or set processing.on_bad_record: skip to leave such records out"
    )


def test_rows_of_another_file_do_not_count_in_an_error() -> None:
    failure = Failed(lines(1, 0, 100), Drop(0, "bad_text", -1, "not UTF-8"), "", "input")
    with pytest.raises(InputError, match=r"web/b\.jsonl\.gz: row 1: bad_text: not UTF-8"):
        list(Reorder(NAMES, LAYOUT, Position()).place([block(lines(0, 0, 10, 0), ["x"], 40), failure]))


def test_rows_before_the_start_count_in_an_error() -> None:
    start = Position(0, 5000, 70, 75)
    failure = Failed(lines(0, 5000, 6000), Drop(9, "bad_record", 5900, "bad"), "", "input")
    with pytest.raises(InputError, match=r"web/a\.jsonl: row 80 \(byte 5,900\)"):
        list(Reorder(NAMES, LAYOUT, start).place([failure]))


def test_a_file_s_error_says_after_which_line_q01() -> None:
    span = Span(1, "lines", 100, 200, -1, 100)
    failure = Failed(
        span, None, "/data/web/b.jsonl.gz: damaged or incomplete compressed data near byte 7", "input"
    )
    reorder = Reorder(NAMES, LAYOUT, Position())
    with pytest.raises(InputError) as caught:
        list(reorder.place([block(Span(1, "lines", 0, 100, -1, 100), ["x"], 12), failure]))
    assert "web/b.jsonl.gz: damaged" in str(caught.value)
    assert "line 13" in str(caught.value)
    assert str(caught.value).count("b.jsonl.gz") == 1


def test_a_dead_worker_s_error_says_where_its_batch_begins() -> None:
    failure = Failed(lines(0, 10, 20), None, "a tokenizer process was killed by SIGKILL twice", "worker")
    with pytest.raises(WorkerError, match=r"web/a\.jsonl: in the batch that begins at row 41.*SIGKILL"):
        list(Reorder(NAMES, LAYOUT, Position()).place([block(lines(0, 0, 10, 0), ["x"], 40), failure]))


def test_blocks_before_a_failure_are_placed() -> None:
    reorder = Reorder(NAMES, LAYOUT, Position())
    placed = reorder.place([block(lines(0, 0, 10, 0), ["x"]), Failed(lines(0, 10, 20), None, "bad", "input")])
    assert next(placed).documents.num_rows == 1
    with pytest.raises(InputError):
        next(placed)


def test_what_is_reached_is_the_file_and_its_bytes_that_are_done() -> None:
    reorder = Reorder(NAMES, LAYOUT, Position())
    assert reorder.reached == (0, 0)
    list(
        reorder.place(
            [
                block(lines(0, 0, 10, 0)._replace(done=10), ["x"]),
                block(lines(1, 0, 9, 0)._replace(done=9), []),
            ]
        )
    )
    assert reorder.reached == (1, 9)


def test_positions_of_a_resumed_block_name_the_file_of_their_document() -> None:
    first, second = block(lines(0, 0, 30, 0), ["a", "b", "c"]), block(lines(1, 0, 20, 0), ["d", "e"])
    documents = pa.Table.from_batches([first.documents, second.documents]).combine_chunks().to_batches()[0]
    both = TokenBlock(first.results + second.results, documents, first.drops, -1, b"")
    [placed] = Reorder(NAMES, LAYOUT, Position(0, 0, 0, 2)).place([both])
    assert placed.documents.column("id").to_pylist() == ["c", "d", "e"]
    positions = [placed.position(index) for index in range(3)]
    assert positions == [Position(0, 0, 0, 2), Position(1, 0, 0, 0), Position(1, 0, 0, 1)]
