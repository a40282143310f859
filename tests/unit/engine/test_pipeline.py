"""What users touch: options, plans, leaving and taking up loops, errors in other threads."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.io import Dataset
from runtime.pipeline import Pipeline
from runtime.work import StaticMixtureWorkSource

if TYPE_CHECKING:
    from pathlib import Path

RUNNERS = ("inline", "threads")


@pytest.fixture
def source(catalog_folder: Path) -> StaticMixtureWorkSource:
    dataset = Dataset.from_path("finished", str(catalog_folder))
    return StaticMixtureWorkSource([dataset], {"finished": 1}, chunk_size=16, stop_after_passes=3)


def pipeline(source: StaticMixtureWorkSource, **options: Any) -> Pipeline:
    return Pipeline(source).pack_flat(32, algorithm="wrap").batch(4).options(**options)


def prefetchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tokenloom-prefetch"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_loop_that_is_left_is_taken_up_where_it_was(source: StaticMixtureWorkSource, runner: str) -> None:
    with pipeline(source, canonical_replicas=3) as whole:
        expected = [batch.to_training()["input_ids"] for batch in whole]
    with pipeline(source, canonical_replicas=3, runner=runner) as parts:
        found = []
        for count in (1, 2, 4, 1000):
            for batch in parts:
                found.append(batch.to_training()["input_ids"])
                count -= 1  # noqa: PLW2901
                if not count:
                    break
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("runner", RUNNERS)
def test_nothing_runs_after_close_or_when_a_pipeline_is_forgotten(
    source: StaticMixtureWorkSource, runner: str
) -> None:
    with pipeline(source, runner=runner) as closed:
        next(iter(closed))
        assert len(prefetchers()) == (runner == "threads")
    assert not prefetchers()
    next(iter(pipeline(source, runner=runner)))
    gc.collect()
    assert not prefetchers()


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_damaged_shard_reaches_the_loop_as_it_is(
    source: StaticMixtureWorkSource, catalog_folder: Path, runner: str
) -> None:
    shard = max((catalog_folder / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    with pipeline(source, runner=runner) as damaged, pytest.raises(Exception, match=shard.name):
        list(damaged)
    assert not prefetchers()


def test_unknown_options_are_refused_with_the_nearest(source: StaticMixtureWorkSource) -> None:
    with pytest.raises(ValueError, match="there is no 'canonical_replica'; did you mean canonical_replicas"):
        pipeline(source, canonical_replica=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runner": "process"}, "runner: expected inline or threads, found 'process'"),
        ({"prefetch_batches": 0}, "prefetch_batches: expected an integer of 1 or more, found 0"),
        ({"flush_every_k_chunks": 0}, "flush_every_k_chunks: expected an integer of 1 or more"),
        ({"canonical_replicas": 4, "dp_degree": 3}, "divisor"),
    ],
)
def test_options_with_wrong_values_are_named(
    source: StaticMixtureWorkSource, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline(source, **options)


def test_a_running_pipeline_takes_no_more_operators(source: StaticMixtureWorkSource) -> None:
    with pipeline(source) as running:
        next(iter(running))
        with pytest.raises(RuntimeError, match="runs already"):
            running.shuffle(10)


def test_a_plan_says_what_runs_and_why(source: StaticMixtureWorkSource) -> None:
    plan = pipeline(source, canonical_replicas=4, dp_degree=2, dp_group_id=1).explain()
    assert not plan.monotone
    assert plan.changes_order == ("pack_flat",)
    assert str(plan) == (
        "runner: inline, in the training loop\n"
        "stages:\n"
        "  fetch: keeps order; flushes\n"
        "  pack_flat: changes order; flushes\n"
        "  batch: keeps order; waits\n"
        "chunks are forgotten epoch by epoch: pack_flat changes it\n"
        "boundary: flush, every 8 chunks of a lane\n"
        "lanes: 4, of which this rank delivers 2, 3 in turn"
    )
    assert Pipeline(source).batch(4).explain().monotone
