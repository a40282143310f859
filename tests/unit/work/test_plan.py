"""What a run will draw, said before anything runs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runtime.debug import DatasetInspector
from runtime.io import Dataset
from runtime.work import StaticMixtureWorkSource, TokenEstimation
from runtime.work import deviation as deviation_module

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.work.conftest import MakeSource

COUNTS = {"a": [6, 4], "b": [30]}


def drawn(source: StaticMixtureWorkSource) -> dict[str, int]:
    found = dict.fromkeys(source.dataset_ids, 0)
    for chunk in iter(source.next_chunk, None):
        for name, rows in chunk.arrays.items():
            found[name] += len(rows)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stop_after_passes": 3},
        {"exhausted_policy": "stop"},
        {"exhausted_policy": "redistribute"},
        {"exhausted_policy": "repeat", "max_repeats": 1},
    ],
)
def test_what_is_planned_is_what_is_drawn(make_source: MakeSource, options: dict[str, Any]) -> None:
    source = make_source(COUNTS, {"a": 1, "b": 3}, chunk_size=7, **options)
    plan = source.plan()
    assert {row.name: row.drawn_samples for row in plan.datasets} == drawn(source)
    assert plan.total_samples == source.total_samples
    assert plan.chunks == math.ceil(source.total_samples / 7)
    for row in plan.datasets:
        assert row.drawn_samples is not None
        assert row.passes == row.drawn_samples / row.samples
        assert row.repeats == math.ceil(row.passes) - 1
        assert row.unread_samples == max(row.samples - row.drawn_samples, 0)
    assert [row.weight for row in plan.datasets] == [0.25, 0.75]


@pytest.mark.parametrize(
    ("options", "stops", "enders"),
    [
        ({}, "b completes pass 1", ["b"]),
        ({"stop_after_passes": {"a": 2}}, "a completes pass 2", ["a"]),
        ({"exhausted_policy": "stop"}, "a has no samples left", ["a"]),
        ({"exhausted_policy": "repeat", "max_repeats": 1}, "a has no samples left after 1 repeats", ["a"]),
        ({"exhausted_policy": "redistribute"}, "every dataset has given all its samples", ["a", "b"]),
        ({"exhausted_policy": "repeat"}, "nothing: the run has no end", []),
    ],
)
def test_what_ends_the_run_is_said(
    make_source: MakeSource, options: dict[str, Any], stops: str, enders: list[str]
) -> None:
    plan = make_source(COUNTS, **options).plan()
    assert plan.stops == stops
    assert [row.name for row in plan.datasets if row.ends_the_run] == enders
    assert f"ends when: {stops}" in str(plan)


def test_a_run_without_end_has_no_totals(make_source: MakeSource) -> None:
    plan = make_source(COUNTS, exhausted_policy="repeat").plan()
    assert (plan.total_samples, plan.total_tokens, plan.chunks) == (None, None, None)
    assert [row.drawn_samples for row in plan.datasets] == [None, None]
    assert "total: without end in chunks of 16,384" in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["datasets"][0]["passes"] is None


def test_tokens_drawn_and_left_are_counted() -> None:
    datasets = [
        Dataset.from_counts("a", [10], num_tokens=[1000]),
        Dataset.from_counts("b", [100], num_tokens=[500]),
    ]
    plan = StaticMixtureWorkSource(datasets, {"a": 1, "b": 2}, exhausted_policy="stop").plan()
    one, other = plan.datasets
    assert (one.drawn_samples, one.drawn_tokens, one.unread_tokens) == (10, 1000, 0)
    assert (other.drawn_samples, other.drawn_tokens) == (21, 105)
    assert (other.unread_samples, other.unread_tokens) == (79, 395)
    assert plan.total_tokens == 1105
    assert one.token_share == 1000 / 1105
    assert one.tokens_are_exact
    assert (one.token_deviation, plan.measured_chunks) == (None, None)


def test_estimates_are_marked() -> None:
    raw = Dataset.from_counts("raw", [10], raw_bytes=[1000])
    plan = StaticMixtureWorkSource([raw], {"raw": 1}, token_estimation=TokenEstimation(primer=0.5)).plan()
    assert (plan.datasets[0].tokens, plan.datasets[0].tokens_are_exact) == (500, False)
    assert "~500" in str(plan)
    assert plan.notes == ("raw: tokens are estimated from its bytes",)


def test_a_plan_by_tokens_has_to_be_primed() -> None:
    raw = Dataset.from_dict("raw", [[{"text": "x"}]])
    source = StaticMixtureWorkSource([raw], {"raw": 1}, token_estimation=TokenEstimation(measure=len))
    with pytest.raises(RuntimeError, match=r"call prime\(\)"):
        source.plan()


@pytest.mark.parametrize(
    ("options", "words", "windows"),
    [
        ({"shuffle_shards": False}, "nothing", [1, 1]),
        ({}, "shards", [1, 1]),
        ({"shuffle_within_shard": True}, "shards, rows inside shards", [6, 30]),
        ({"shuffle_block_size": 20}, "shards, blocks of 20 samples", [10, 20]),
        ({"shuffle_block_size": "global"}, "each dataset as a whole", [10, 30]),
    ],
)
def test_the_shuffle_that_is_achieved_is_said(
    make_source: MakeSource, options: dict[str, Any], words: str, windows: list[int]
) -> None:
    """Case Q43."""
    plan = make_source(COUNTS, **options).plan()
    assert plan.shuffled == words
    assert [row.shuffle_window for row in plan.datasets] == windows


def test_what_may_be_unexpected_is_noted(make_source: MakeSource, catalog_folder: Path) -> None:
    source = make_source(
        {"a": [3, 4], "b": [5], "again": [3, 4], "idle": [9]}, {"a": 1, "b": 1, "again": 1, "idle": 0}
    )
    assert source.plan().notes == (
        "idle has the weight 0: it is never drawn",
        "a, again hold the same data",
    )
    assert "note: a, again hold the same data" in str(source.plan())
    empty = make_source({"a": [], "b": [5]}, exhausted_policy="redistribute").plan()
    assert empty.notes == ("a has no samples",)
    assert empty.datasets[0].passes == 0
    first, second = (Dataset.from_path(name, str(catalog_folder)) for name in ("x", "y"))
    second._table.tokenizer = "another"
    plan = StaticMixtureWorkSource([first, second], {"x": 1, "y": 1}).plan()
    assert "x, y were made by different tokenizers" in plan.notes


def test_a_changed_mixture_lists_its_stages(make_source: MakeSource) -> None:
    old = make_source(COUNTS, chunk_size=5)
    old.next_chunk()
    new = make_source(COUNTS, {"a": 0.25, "b": 1}, chunk_size=5)
    new.begin_stage([old.state_dict()])
    assert "from chunk 0 on: a 1, b 1" in str(new.plan())
    assert "from chunk 1 on: a 0.25, b 1" in str(new.plan())


# --- how far tokens stray


def by_tokens(folder: Path, **options: Any) -> StaticMixtureWorkSource:
    datasets = [Dataset.from_path(name, str(folder)) for name in ("x", "y")]
    return StaticMixtureWorkSource(
        datasets, {"x": 2, "y": 1}, chunk_size=9, token_estimation=TokenEstimation(), **options
    )


def test_deviations_are_those_of_a_recount(catalog_folder: Path) -> None:
    source = by_tokens(catalog_folder, shuffle_within_shard=True)
    plan = source.plan()
    lengths = {}
    for dataset in source.datasets_by_id.values():
        with DatasetInspector(dataset) as inspector:
            for shard, count in enumerate(dataset.counts().tolist()):
                rows = inspector.read_many(shard, range(count))
                lengths[dataset.name, shard] = [len(row["tokens"]) for row in rows]
    rows = []
    for chunk in iter(source.next_chunk, None):
        samples = chunk.components
        rows.append(
            [sum(lengths[name, shard][row] for _, shard, row in samples.get(name, [])) for name in "xy"]
        )
    whole = source.total_samples // 9
    counted = np.array(rows)
    so_far = counted.cumsum(axis=0)
    assert plan.measured_chunks == math.ceil(source.total_samples / 9)
    assert whole > 3
    for column, share in enumerate((2 / 3, 1 / 3)):
        row = plan.datasets[column]
        expected = np.abs(so_far[:, column] / so_far.sum(axis=1) - share).max()
        assert row.token_deviation == pytest.approx(expected)
        inside = np.abs(counted[:, column] / counted.sum(axis=1) - share).max()
        assert row.chunk_token_deviation == pytest.approx(inside)
    assert "largest deviation" in str(plan)


def test_the_work_of_measuring_is_bounded(catalog_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviation_module, "MOST_SAMPLES", 30)
    assert by_tokens(catalog_folder, exhausted_policy="repeat").plan().measured_chunks == 3
    monkeypatch.setattr(deviation_module, "MOST_SHARDS", 0)
    plan = by_tokens(catalog_folder).plan()
    assert (plan.measured_chunks, plan.datasets[0].token_deviation) == (None, None)


def test_deviations_are_measured_as_far_as_the_shares_hold(catalog_folder: Path) -> None:
    source = by_tokens(catalog_folder, exhausted_policy="redistribute")
    change = source.schedule.segments[1].start
    assert source.plan().measured_chunks == change // 9


def test_nothing_is_fetched_to_measure(catalog_folder: Path) -> None:
    source = by_tokens(catalog_folder)
    for dataset in source.datasets_by_id.values():
        dataset._table.is_local = False
    assert source.plan().measured_chunks is None
