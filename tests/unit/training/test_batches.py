"""Batches as arrays: labels, masks, boundaries, names, types; and where tokens come from."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.debug import DatasetInspector
from runtime.io import Dataset
from runtime.pipeline import Pipeline
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runtime.training.batches import SampleBatch

LENGTH = 33
EOS = 0


@pytest.fixture
def batches(catalog_folder: Path) -> Iterator[list[SampleBatch]]:
    """All batches of the finished catalog; the last one has padding, with the id of EOS."""
    dataset = Dataset.from_path("finished", str(catalog_folder))
    source = StaticMixtureWorkSource([dataset], {"finished": 1})
    pipeline = Pipeline(source).pack_flat(LENGTH, algorithm="first_fit", num_bins=2, pad_token_id=EOS)
    with pipeline.batch(4, drop_last=False) as opened:
        yield list(opened)


def test_without_more_there_are_ids_and_positions(batches: list[SampleBatch]) -> None:
    arrays = batches[0].to_training()
    assert list(arrays) == ["input_ids", "positions"]
    assert arrays["input_ids"].shape == arrays["positions"].shape == (4, LENGTH)
    assert arrays["input_ids"].dtype == np.int64


def test_labels_are_the_next_ids_and_padding_is_not_learned(batches: list[SampleBatch]) -> None:
    for batch in batches:
        stored = batch.to_training(return_padding_mask=True)
        arrays = batch.to_training(return_labels=True, return_loss_mask=True, return_num_valid_tokens=True)
        np.testing.assert_array_equal(arrays["input_ids"], stored["input_ids"][:, :-1])
        learned = ~stored["padding_mask"][:, 1:]
        np.testing.assert_array_equal(arrays["labels"], np.where(learned, stored["input_ids"][:, 1:], -100))
        np.testing.assert_array_equal(arrays["loss_mask"], learned)
        assert arrays["num_valid_tokens"] == np.count_nonzero(learned)


def test_q50_padding_with_the_id_of_eos_is_known_by_its_place(batches: list[SampleBatch]) -> None:
    """Positions, boundaries, document ids and padding agree on where documents are."""
    seen = False
    for batch in batches:
        arrays = batch.to_training(
            return_padding_mask=True, return_cu_seqlens=True, extra_fields=["document_ids"], flatten=True
        )
        seen = seen or bool(arrays["padding_mask"].any())
        edges = arrays["cu_seqlens"]
        assert edges.dtype == np.int32
        assert (edges[0], edges[-1]) == (0, len(arrays["input_ids"]))
        assert arrays["max_seqlen"] == np.diff(edges).max()
        np.testing.assert_array_equal(np.flatnonzero(arrays["positions"] == 0), edges[:-1])
        for first, stop in pairwise(edges.tolist()):
            assert len(set(arrays["document_ids"][first:stop])) == 1
            assert len(set(arrays["padding_mask"][first:stop])) == 1
    assert seen


def test_what_eos_predicts_may_be_left_out(batches: list[SampleBatch]) -> None:
    plain = batches[0].to_training(return_labels=True)
    masked = batches[0].to_training(return_labels=True, eos_mask_loss=True, eos_token_id=EOS)
    behind_eos = plain["input_ids"] == EOS
    assert behind_eos.any()
    assert (masked["labels"][behind_eos] == -100).all()
    np.testing.assert_array_equal(masked["labels"][~behind_eos], plain["labels"][~behind_eos])


def test_names_types_and_shapes_can_be_chosen(batches: list[SampleBatch]) -> None:
    arrays = batches[0].to_training(
        dtype="int32", rename_fields={"input_ids": "tokens"}, exclude_fields=["positions"], flatten=True
    )
    assert list(arrays) == ["tokens"]
    assert (arrays["tokens"].dtype, arrays["tokens"].shape) == (np.int32, (4 * LENGTH,))
    counted = batches[0].to_training(position_mode="sequence")["positions"]
    np.testing.assert_array_equal(counted, np.tile(np.arange(LENGTH), (4, 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position_mode": "rows"}, "position_mode: expected preserve or sequence, found 'rows'"),
        ({"framework": "jax"}, "framework: expected numpy or torch, found 'jax'"),
        ({"eos_mask_loss": True}, "eos_mask_loss: needs eos_token_id"),
        ({"dtype": "int8"}, "dtype: int8 does not hold the id"),
        ({"dtype": "float32"}, "dtype: expected an integer type, found float32"),
        ({"rename_fields": {"input_id": "x"}}, "no array 'input_id' .did you mean 'input_ids'"),
        ({"extra_fields": ["language"]}, "extra_fields: no field 'language'"),
    ],
)
def test_wrong_arguments_are_named(
    batches: list[SampleBatch], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        batches[0].to_training(**arguments)


def test_q74_every_token_can_be_traced_to_its_source(
    batches: list[SampleBatch], catalog_folder: Path
) -> None:
    dataset = Dataset.from_path("finished", str(catalog_folder))
    with DatasetInspector(dataset) as inspector:
        for batch in batches:
            ids = batch.to_training()["input_ids"]
            for row, origins in enumerate(batch.provenance()):
                place = 0
                for origin in origins:
                    document = inspector.read(origin.shard_id, origin.sample_idx)
                    tokens = document["tokens"][origin.first_token : origin.stop_token]
                    np.testing.assert_array_equal(ids[row, place : place + len(tokens)], tokens)
                    assert origin.dataset == "finished"
                    assert (origin.source_file, origin.source_row) == (
                        document["source"],
                        document["source_row"],
                    )
                    place += len(tokens)


def test_a_batch_says_which_samples_its_rows_begin_with(batches: list[SampleBatch]) -> None:
    batch = batches[0]
    assert len(batch) == len(batch.records) == len(batch.ids) == 4
    assert batch.lane_ids == [0] * 4
    assert batch.chunk_ids == [0] * 4
    assert all(path for path in batch.lineage_paths)
