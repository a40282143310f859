"""The line between two processes: what goes in comes out, and no descriptor stays."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep.pipeline.channel import Channel, Payload
from prep.pipeline.messages import Credit, Failed, ReaderMessage, Span, StreamEnd
from prep.readers.block import Drop

if TYPE_CHECKING:
    from collections.abc import Iterator

SPAN = Span(3, "lines", 10, 20, -1, 10)


def descriptors() -> dict[str, str]:
    """Open files of this process by number."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            found[path.name] = str(path.readlink())
        except FileNotFoundError:  # that of the listing
            continue
    return found


def mapped() -> int:
    """How many payloads are in this process's memory."""
    return Path("/proc/self/maps").read_text("ascii").count("memfd:tokenloom")


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = multiprocessing.Pipe(duplex=True)
    channels = Channel(left), Channel(right)
    yield channels
    for channel in channels:
        channel.close()


def batch(rows: int, text: str = "text") -> pa.RecordBatch:
    words = pa.array([f"{text} {row}" if row % 3 else None for row in range(rows)], pa.string())
    columns = {
        "words": words,
        "ids": pa.array([[row % 1000] * (row % 4) for row in range(rows)], pa.list_(pa.uint16())),
    }
    return pa.record_batch({**columns, "codes": words.dictionary_encode()})


@pytest.mark.parametrize("rows", [0, 1, 7, 100_000])
def test_record_batches_come_out_as_they_went_in(rows: int) -> None:
    payload = Payload.of([batch(rows), batch(rows).slice(rows // 2)])
    assert payload.batch(0).equals(batch(rows))
    assert payload.batch(1).equals(batch(rows).slice(rows // 2))
    payload.close()


@given(parts=st.lists(st.lists(st.binary(max_size=200), max_size=4), max_size=5))
@settings(max_examples=60, deadline=None)
def test_bytes_come_out_as_they_went_in(parts: list[list[bytes]]) -> None:
    before = descriptors()
    payload = Payload.of([[memoryview(piece) for piece in pieces] for pieces in parts])
    assert payload.sizes == tuple(sum(map(len, pieces)) for pieces in parts)
    assert [payload.data(number) for number in range(len(parts))] == [b"".join(pieces) for pieces in parts]
    payload.close()
    assert descriptors() == before


def test_batches_and_bytes_travel_together() -> None:
    payload = Payload.of([batch(5), [b"some ", b"bytes"], batch(0), []])
    assert payload.batch(0).equals(batch(5))
    assert payload.data(1) == b"some bytes"
    assert payload.batch(2).num_rows == 0
    assert payload.data(3) == b""
    payload.close()


def test_a_batch_stays_valid_without_a_copy_after_the_payload_is_closed() -> None:
    numbers = np.arange(1 << 20)
    payload = Payload.of([[b"x"], pa.record_batch({"n": numbers})])
    found = payload.batch(1)
    payload.close()
    payload.close()
    assert np.array_equal(found.column("n").to_numpy(), numbers)
    assert found.column("n").buffers()[1].address % 8 == 0


def test_a_closed_payload_leaves_no_descriptor_and_no_memory() -> None:
    before, maps = descriptors(), mapped()
    payload = Payload.of([pa.record_batch({"n": np.arange(1 << 20)})])
    assert len(descriptors()) == len(before) + 1
    found = payload.batch(0)
    payload.close()
    assert mapped() == maps + 1  # the batch holds it
    del found
    assert mapped() == maps
    assert descriptors() == before


def test_messages_arrive_in_order_each_with_its_payload(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    payloads = [Payload.of([[b"%d" % number * 50]]) for number in range(20)]
    for number, payload in enumerate(payloads):
        left.send(Credit(number))
        left.send(ReaderMessage(SPAN._replace(file=number)), payload)
        payload.close()
    for number in range(20):
        assert right.receive() == (Credit(number), None)
        message, received = right.receive()
        assert message == ReaderMessage(SPAN._replace(file=number))
        assert received is not None
        assert received.data(0) == b"%d" % number * 50
        received.close()


def test_both_sides_may_talk_at_once(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    heard: list[list[int]] = [[], []]

    def talk(side: int) -> None:
        for number in range(100):
            with_payload = Payload.of([[bytes(1000)]])
            ends[side].send(Credit(number), with_payload)
            with_payload.close()
        for _ in range(100):
            message, payload = ends[side].receive()
            heard[side].append(message.blocks)
            assert payload is not None
            payload.close()

    threads = [Thread(target=talk, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert heard == [list(range(100))] * 2
    assert (left, right) == ends


def test_failures_keep_what_they_say(ends: tuple[Channel, Channel]) -> None:
    failure = Failed(SPAN, Drop(1, "bad_record", 7, "what \ufffd was found"), "message", "input")
    ends[0].send(failure)
    assert ends[1].receive() == (failure, None)


def test_the_end_of_the_other_side_is_an_error(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send(StreamEnd())
    left.close()
    assert right.receive() == (StreamEnd(), None)
    with pytest.raises(EOFError):
        right.receive()
    with pytest.raises(OSError, match=r"."):
        right.send(StreamEnd())


def test_a_process_that_is_killed_between_a_message_and_its_payload_is_gone_q23(
    ends: tuple[Channel, Channel],
) -> None:
    """As when it is killed anywhere else: its unit is tried again."""
    left, right = ends
    left.connection.send((StreamEnd(), (5,)))
    left.close()
    with pytest.raises(EOFError):
        right.receive()


def _echo(connection: Any) -> None:
    channel = Channel(connection)
    for _ in range(3):
        _, payload = channel.receive()
        assert payload is not None
        answer = Payload.of([payload.batch(0), [payload.data(1)]])
        payload.close()
        channel.send(len(os.listdir("/proc/self/fd")), answer)  # noqa: PTH208 - one number is enough
        answer.close()
    channel.close()


def test_payloads_cross_processes_and_no_descriptor_stays_there() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=True)
    child = context.Process(target=_echo, args=(there,), daemon=True)
    child.start()
    there.close()
    channel, held = Channel(here), []
    for rows in (0, 10, 200_000):
        payload = Payload.of([batch(rows), [b"x" * rows]])
        channel.send(Credit(rows), payload)
        payload.close()
        count, answer = channel.receive()
        assert answer is not None
        assert answer.batch(0).equals(batch(rows))
        assert answer.data(1) == b"x" * rows
        answer.close()
        held.append(count)
    child.join(10)
    channel.close()
    assert child.exitcode == 0
    assert held[0] == held[1] == held[2]
    child.close()
