"""Arrays of batches against a plain walk over rows of lists, for every argument and every mix of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.blocks import NO_TOKENS, REF_SHIFT, Batch, Block, Pieces
from runtime.training.batches import SampleBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

EOS = 3


@dataclass
class Column:
    tokens: NDArray[Any]


class Store:
    """Two shards, one of narrow ids and one of wide ones."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.columns = [
            Column(rng.integers(0, 7, 500).astype(np.uint16)),
            Column(rng.integers(0, 7, 500).astype(np.uint32) + np.uint32(65_530)),
        ]

    def column(self, place: int) -> Column:
        return self.columns[place]


STORE: Any = Store()


def pieces_of(lengths: NDArray[np.int64], refs: NDArray[np.int64]) -> Pieces:
    """A piece a sample, of one component."""
    zeros = np.zeros(len(refs), np.int64)
    samples = np.zeros((len(refs), 3), np.int64)
    return Pieces(
        zeros, np.arange(len(refs)), samples, zeros.astype(np.int32), zeros == 0, zeros, lengths, refs
    )


@dataclass
class Case:
    """Rows of pieces (shard, first token, tokens), and which of them are in the batch."""

    rows: list[list[tuple[int, int, int]]]
    first: int
    stop: int
    capacity: int
    pad_id: int

    def batch(self) -> SampleBatch:
        pieces = [piece for row in self.rows for piece in row]
        places, firsts, lengths = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
        block = Block(
            0,
            pieces_of(lengths, (places << REF_SHIFT) + firsts),
            np.cumsum([0, *map(len, self.rows)]),
            capacity=self.capacity,
            pad_id=self.pad_id,
        )
        return SampleBatch(Batch(block, self.first, self.stop), STORE)

    def segments(self) -> list[list[tuple[list[int], bool]]]:
        """Of each row of the batch its pieces as ids, and whether each is padding."""
        found = []
        for row in self.rows[self.first : self.stop]:
            pieces = [
                (STORE.columns[place].tokens[at : at + size].tolist(), False) for place, at, size in row
            ]
            room = self.capacity - sum(len(ids) for ids, _ in pieces)
            found.append([piece for piece in [*pieces, ([self.pad_id] * room, True)] if piece[0]])
        return found


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    capacity = draw(st.integers(1, 12))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        row, room = [], capacity
        for _ in range(draw(st.integers(1, 4))):
            size = draw(st.integers(0, room))
            row.append((draw(st.integers(0, 1)), draw(st.integers(0, 400)), size))
            room -= size
        rows.append(row)
    first = draw(st.integers(0, len(rows) - 1))
    stop = draw(st.integers(first + 1, len(rows)))
    return Case(rows, first, stop, capacity, draw(st.sampled_from([0, EOS, 100_000])))


ARGUMENTS: dict[str, Any] = {
    "return_labels": st.booleans(),
    "ignore_index": st.sampled_from([-100, -1]),
    "dtype": st.sampled_from(["auto", "int32", np.int64]),
    "extra_fields": st.sampled_from([(), ("document_ids",)]),
    "flatten": st.booleans(),
    "exclude_fields": st.sampled_from([(), ("positions",), ("input_ids", "labels")]),
    "rename_fields": st.sampled_from([None, {"positions": "position_ids", "loss_mask": "weights"}]),
    "return_num_valid_tokens": st.booleans(),
    "return_loss_mask": st.booleans(),
    "return_cu_seqlens": st.booleans(),
    "return_padding_mask": st.booleans(),
    "eos_mask_loss": st.booleans(),
    "position_mode": st.sampled_from(["preserve", "sequence"]),
}


def modelled(segments: list[list[tuple[list[int], bool]]], **chosen: Any) -> dict[str, Any]:
    """What `to_training` should give, by lists."""
    shift = int(chosen["return_labels"])
    ids = [[token for piece, _ in row for token in piece] for row in segments]
    width = len(ids[0]) - shift
    padding = [[is_padding for piece, is_padding in row for _ in piece] for row in segments]
    learned = [
        [
            not pads[place + shift] and not (chosen["eos_mask_loss"] and row[place] == EOS)
            for place in range(width)
        ]
        for row, pads in zip(ids, padding, strict=True)
    ]
    in_document = [[place for piece, _ in row for place in range(len(piece))] for row in segments]
    edges = [0]
    for row in segments:
        begin = 0
        for piece, _ in row:
            edges.append(edges[-1] + max(min(begin + len(piece), width) - begin, 0))
            begin += len(piece)
    edges = sorted(set(edges))
    found: dict[str, Any] = {
        "input_ids": [row[:width] for row in ids],
        "positions": [
            (row if chosen["position_mode"] == "preserve" else list(range(len(row))))[:width]
            for row in in_document
        ],
    }
    if chosen["return_labels"]:
        found["labels"] = [
            [row[place + 1] if mask[place] else chosen["ignore_index"] for place in range(width)]
            for row, mask in zip(ids, learned, strict=True)
        ]
    if chosen["return_loss_mask"]:
        found["loss_mask"] = learned
    if chosen["return_padding_mask"]:
        found["padding_mask"] = [row[:width] for row in padding]
    if chosen["return_num_valid_tokens"]:
        found["num_valid_tokens"] = sum(map(sum, learned))
    if chosen["return_cu_seqlens"]:
        found["cu_seqlens"] = edges
        found["max_seqlen"] = max([later - earlier for earlier, later in pairwise(edges)], default=0)
    if chosen["extra_fields"]:
        found["document_ids"] = [
            [number for number, (piece, _) in enumerate(row) for _ in piece][:width] for row in segments
        ]
    found = {name: value for name, value in found.items() if name not in chosen["exclude_fields"]}
    if chosen["flatten"]:
        found = {
            name: [each for row in value for each in row]
            if isinstance(value, list) and name != "cu_seqlens"
            else value
            for name, value in found.items()
        }
    return {(chosen["rename_fields"] or {}).get(name, name): value for name, value in found.items()}


@given(case=cases(), chosen=st.fixed_dictionaries(ARGUMENTS))
def test_arrays_are_those_of_a_plain_walk(case: Case, chosen: dict[str, Any]) -> None:
    """R8: ids, positions, boundaries, masks and labels agree with the rows, whatever is asked for at once."""
    arrays = case.batch().to_training(**chosen, eos_token_id=EOS)
    expected = modelled(case.segments(), **chosen)
    assert list(arrays) == list(expected)
    width = case.capacity - chosen["return_labels"]
    shape = ((case.stop - case.first) * width,) if chosen["flatten"] else (case.stop - case.first, width)
    for name, value in expected.items():
        if isinstance(value, int):
            assert arrays[name] == value, name
            continue
        if name != "cu_seqlens":
            assert arrays[name].shape == shape, name
        assert arrays[name].tolist() == (np.array(value).reshape(arrays[name].shape).tolist()), name
        assert arrays[name].flags.writeable
    kind = np.int64 if chosen["dtype"] == "auto" else np.dtype(chosen["dtype"])
    kinds = {"input_ids": kind, "labels": kind, "cu_seqlens": np.int32, "document_ids": np.int32}
    for name in kinds.keys() & arrays.keys():
        assert arrays[name].dtype == kinds[name]


@given(case=cases(), chosen=st.fixed_dictionaries(ARGUMENTS))
def test_arrays_of_a_batch_are_its_own(case: Case, chosen: dict[str, Any]) -> None:
    """Whoever writes to what it got changes no other array, no other batch and no shard."""
    batch = case.batch()
    before = [column.tokens.copy() for column in STORE.columns]
    expected = batch.to_training(**chosen, eos_token_id=EOS)
    for written in expected:
        arrays = batch.to_training(**chosen, eos_token_id=EOS)
        if isinstance(arrays[written], np.ndarray):
            arrays[written][...] = 1
        for name in arrays.keys() - {written}:
            np.testing.assert_array_equal(arrays[name], expected[name])
    for column, tokens in zip(STORE.columns, before, strict=True):
        np.testing.assert_array_equal(column.tokens, tokens)


# --- records that carry their own data


def carried(*payloads: Any) -> SampleBatch:
    count = len(payloads)
    pieces = pieces_of(np.zeros(count, np.int64), np.full(count, NO_TOKENS))
    return SampleBatch(Batch(Block(0, pieces, payloads=payloads), 0, len(payloads)), STORE)


def test_rows_of_equal_length_need_no_packing() -> None:
    batch = carried({"input_ids": [5, 6, 7], "score": 0.5}, {"input_ids": np.array([1, 2, 3]), "score": 2})
    arrays = batch.to_training(return_labels=True, return_cu_seqlens=True, extra_fields=["score"])
    assert arrays["input_ids"].tolist() == [[5, 6], [1, 2]]
    assert arrays["labels"].tolist() == [[6, 7], [2, 3]]
    assert arrays["positions"].tolist() == [[0, 1], [0, 1]]
    assert arrays["cu_seqlens"].tolist() == [0, 2, 4]
    assert arrays["score"].tolist() == [0.5, 2.0]


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"rows have different lengths, 1 to 2 tokens; pack them \(pack_flat\)"
    ):
        carried({"tokens": [1, 2]}, {"tokens": [3]}).to_training()


def test_the_field_with_the_ids_is_found_or_named() -> None:
    assert carried({"tokens": [1], "x": [2]}).to_training()["input_ids"].tolist() == [[1]]
    assert carried({"x": np.array([2])}).to_training()["input_ids"].tolist() == [[2]]
    assert carried({"tokens": [1], "x": [2]}).to_training(tokens_field="x")["input_ids"].tolist() == [[2]]
    assert carried(np.array([4, 5])).to_training()["input_ids"].tolist() == [[4, 5]]


@pytest.mark.parametrize(
    ("payload", "arguments", "message"),
    [
        (
            {"a": np.array([1]), "b": np.array([2])},
            {},
            "cannot tell which field holds the token ids; fields are a, b",
        ),
        ({"tokens": [1]}, {"tokens_field": "token"}, r"no field 'token' \(did you mean 'tokens'\?\)"),
        ({"tokens": [1.5]}, {}, "expected integers of one dimension, found float64"),
        ({"tokens": "abc"}, {}, "expected token ids, found str"),
        (None, {}, "expected token ids, found nothing"),
        ({"tokens": [1]}, {"extra_fields": ["text"]}, "extra_fields: no field 'text'; known are tokens"),
        (
            {"tokens": [1]},
            {"extra_fields": ["labels"]},
            "'labels' is the name of an array that is made anyway",
        ),
        ({"tokens": [1]}, {"exclude_fields": ["label"]}, r"no array 'label' \(did you mean 'labels'\?\)"),
        (
            {"tokens": [1]},
            {"rename_fields": {"positions": "input_ids"}},
            "rename_fields: two arrays would be called 'input_ids'",
        ),
        ({"tokens": [1]}, {"dtype": "text"}, "dtype: expected \"auto\" or a type of numpy, found 'text'"),
    ],
)
def test_what_is_wrong_with_records_is_named(payload: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        carried(payload).to_training(**arguments)


def test_labels_need_a_type_that_holds_the_ignored_index() -> None:
    case = Case([[(0, 0, 2)]], 0, 1, 4, 0)
    with pytest.raises(ValueError, match="ignore_index: uint32 does not hold -100"):
        case.batch().to_training(return_labels=True, dtype="uint32")


def test_narrow_types_are_refused_where_they_would_change_ids() -> None:
    case = Case([[(1, 0, 2)]], 0, 1, 2, 0)
    with pytest.raises(ValueError, match="dtype: int16 does not hold the id 65,53"):
        case.batch().to_training(dtype="int16")
    assert Case([[(0, 0, 2)]], 0, 1, 2, 0).batch().to_training(dtype="uint8")["input_ids"].dtype == np.uint8


def test_ids_below_zero_are_refused_where_a_type_has_none() -> None:
    with pytest.raises(ValueError, match="dtype: uint64 does not hold the id -1"):
        carried({"tokens": np.array([5, -1], np.int32)}).to_training(dtype="uint64")


def test_torch_shares_the_memory_of_the_arrays() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    arrays = Case([[(0, 0, 3)]], 0, 1, 4, 0).batch().to_training(framework="torch", return_cu_seqlens=True)
    assert all(isinstance(value, torch.Tensor | int) for value in arrays.values())
    assert arrays["input_ids"].shape == (1, 4)


def test_torch_is_asked_for_by_name_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError, match=r"tokenloom\[torch\]"):
        Case([[(0, 0, 3)]], 0, 1, 4, 0).batch().to_training(framework="torch")
