"""Mixtures by tokens: exact, pinned, measured, and what they refuse."""

from __future__ import annotations

import json
import logging
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from prep.catalog.errors import RefusedError
from runtime.io import Dataset
from runtime.work import CountingSpec, StaticMixtureWorkSource, TokenEstimation
from runtime.work.tokens import chosen_samples, measured_mean, shards_to_read

if TYPE_CHECKING:
    from pathlib import Path

    from runtime.work import MixtureSpec

EXACT = Dataset.from_counts("exact", [100, 50], num_tokens=[40_000, 20_000], raw_bytes=[1, 1])
SHORT = Dataset.from_counts("short", [600], num_tokens=[24_000])


def texts(name: str, lengths: list[int]) -> Dataset:
    """Two shards of texts of so many words."""
    rows = [{"text": " ".join(["fox"] * length)} for length in lengths]
    return Dataset.from_dict(name, [rows[::2], rows[1::2]])


def source(
    datasets: list[Dataset], mixture: dict[str, float] | MixtureSpec, **fields: Any
) -> StaticMixtureWorkSource:
    return StaticMixtureWorkSource(
        datasets, mixture, chunk_size=100, token_estimation=TokenEstimation(**fields), seed=3
    )


def test_q40_token_shares_of_token_shards_are_exact_without_priming() -> None:
    """Q40: 400 and 40 tokens a document, equal weights: ten of the short ones for one of the long ones."""
    mixture = source([EXACT, SHORT], {"exact": 1, "short": 1})
    assert not mixture.requires_token_priming
    drawn = {"exact": 0, "short": 0}
    while (chunk := mixture.next_chunk()) is not None:
        for name, rows in chunk.arrays.items():
            drawn[name] += len(rows)
        assert chunk.target_mixture == {"exact": 0.5, "short": 0.5}
    assert drawn["exact"] == 150
    assert (
        abs(drawn["short"] - 1500) <= 10
    )  # within the bound of the order, which is a sample of the long one
    plan = mixture.plan()
    assert plan.unit == "tokens"
    assert [row.drawn_tokens for row in plan.datasets] == [60_000, drawn["short"] * 40]


def test_pins_are_tokens_per_byte() -> None:
    raw = Dataset.from_counts("raw", [10, 10], raw_bytes=[1000, 3000])
    pinned = source([raw, SHORT], {"raw": 1, "short": 1}, primer={"raw": 0.2})
    assert not pinned.requires_token_priming
    described = pinned.state_dict()["order"]["datasets"]
    assert described["raw"]["tokens_per_sample"] == "40"  # 0.2 * 4,000 / 20
    assert source([raw], {"raw": 1}, primer=0.5).state_dict()["order"]["datasets"]["raw"][
        "tokens_per_sample"
    ] == str(Fraction(100))


def test_measuring_takes_the_users_function() -> None:
    data = texts("data", [3] * 40)
    mixture = source(
        [data, SHORT],
        {"data": 1, "short": 1},
        measure=lambda payload: len(payload["text"].split()),
    )
    assert mixture.requires_token_priming
    with pytest.raises(RuntimeError, match=r"call prime\(\) before its first chunk, for data"):
        mixture.next_chunk()
    mixture.prime()
    assert not mixture.requires_token_priming
    assert mixture.state_dict()["order"]["datasets"]["data"]["tokens_per_sample"] == "3"


def test_measuring_counts_with_a_tokenizer(tokenizer_json: Path) -> None:
    data = texts("data", [5] * 10 + [15] * 10)
    spec = CountingSpec(str(tokenizer_json), added=1)
    estimation = TokenEstimation()
    found = measured_mean(data, estimation, 0, spec)
    every = spec.counter()([" ".join(["fox"] * length) for length in [5] * 10 + [15] * 10])
    assert found == pytest.approx(every / 20)
    assert found == measured_mean(data, estimation, 0, spec)


def test_measured_tokens_travel_in_the_state() -> None:
    data = texts("data", [3] * 40)
    count = len
    first = source([data], {"data": 1}, measure=lambda payload: count(payload["text"]))
    first.prime()
    first.next_chunk()
    state = json.loads(json.dumps(first.state_dict()))
    resumed = source([data], {"data": 1}, measure=lambda payload: count(payload["text"]))
    assert resumed.requires_token_priming
    resumed.load_state_dict(state)
    assert not resumed.requires_token_priming
    other = source([data], {"data": 1}, primer=0.5)
    with pytest.raises(RefusedError, match="tokens_per_sample"):
        other.load_state_dict(state)


def test_what_cannot_be_measured_takes_the_fallback_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"other": 1}] * 8
    data = Dataset.from_dict("data", [rows])
    spec_less = TokenEstimation(measure=lambda _: 0)
    with pytest.raises(ValueError, match="no text found to measure and its bytes are not known"):
        measured_mean(data, spec_less, 0, None)
    raw = Dataset.from_counts("raw", [10], raw_bytes=[1000])
    with caplog.at_level(logging.WARNING, logger="runtime.work.tokens"):
        assert measured_mean(raw, TokenEstimation(measure=lambda _: 0), 0, None) == 25.0
    assert "taking 0.25 tokens per byte" in caplog.text


def test_more_shards_are_read_where_they_differ() -> None:
    alike = Dataset.from_counts("alike", [100] * 50, raw_bytes=[1000] * 50)
    differing = Dataset.from_counts("differing", [100] * 50, raw_bytes=[100, 9000] * 25)
    unknown = Dataset.from_counts("unknown", [100] * 50)
    estimation = TokenEstimation()
    assert [shards_to_read(each, estimation) for each in (alike, differing, unknown)] == [4, 16, 16]
    assert [shard for shard, _ in chosen_samples(differing, estimation, 0)] == [
        shard for shard, _ in chosen_samples(differing, estimation, 0)
    ]
    assert sum(len(rows) for _, rows in chosen_samples(differing, estimation, 0)) <= 2048 + 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"primer": -1.0}, "primer: expected a finite number above 0, found -1.0"),
        ({"primer": {"a": float("nan")}}, "primer: 'a': expected a finite number above 0"),
        ({"fallback_tokens_per_byte": 0}, "fallback_tokens_per_byte: expected a finite number above 0"),
        ({"calibration_shards_min": 20}, "calibration_shards_min: expected at most calibration_shards_max"),
        ({"calibration_samples": 0}, "calibration_samples: expected an integer of 1 or more"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenEstimation(**fields)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="'exact' is a catalog of token shards"):
        source([EXACT], {"exact": 1}, primer={"exact": 0.3})
    empty = Dataset.from_counts("empty", [3], num_tokens=[0])
    with pytest.raises(ValueError, match="'empty' holds no tokens"):
        source([empty], {"empty": 1})
    unknown = Dataset.from_counts("unknown", [3])
    with pytest.raises(ValueError, match="the bytes of 'unknown' are not known"):
        source([unknown], {"unknown": 1}, primer=0.3)
    mixture = source([texts("data", [1])], {"data": 1})
    with pytest.raises(ValueError, match="needs a tokenizer"):
        mixture.prime()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"primer": "mesure"}, "primer: expected 'measure', tokens per byte, or a mapping .* found 'mesure'"),
        ({"primer": True}, "primer: expected a finite number above 0, found True"),
        ({"primer": None}, "primer: expected a finite number above 0, found None"),
        ({"measure": 3}, "measure: expected a callable, found 3"),
        ({"calibration_shards_min": 0}, "calibration_shards_min: expected an integer of 1 or more, found 0"),
        ({"calibration_shards_max": 2.5}, "calibration_shards_max: expected an integer of 1 or more"),
        ({"calibration_samples": True}, "calibration_samples: expected an integer of 1 or more, found True"),
        ({"fallback_tokens_per_byte": float("inf")}, "fallback_tokens_per_byte: expected a finite number"),
    ],
)
def test_fields_of_other_kinds_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenEstimation(**fields)


def test_defaults_are_the_documented_ones() -> None:
    estimation = TokenEstimation()
    assert (estimation.primer, estimation.measure, estimation.calibration_samples) == ("measure", None, 2048)
    assert (estimation.calibration_shards_min, estimation.calibration_shards_max) == (4, 16)
    assert estimation.fallback_tokens_per_byte == 0.25


def test_a_pin_of_no_dataset_is_refused_with_the_name_that_is_meant() -> None:
    raw = Dataset.from_counts("raw", [10], raw_bytes=[100])
    with pytest.raises(
        ValueError, match=r"primer: no dataset 'rawe' \(did you mean 'raw'\?\); datasets are raw"
    ):
        source([raw], {"raw": 1}, primer={"rawe": 0.2})


def test_some_are_pinned_and_the_rest_is_measured() -> None:
    raw = Dataset.from_counts("raw", [10], raw_bytes=[100])
    data = texts("data", [4] * 10)
    mixture = source(
        [raw, data],
        {"raw": 1, "data": 1},
        primer={"raw": 0.2},
        measure=lambda payload: len(payload["text"].split()),
    )
    assert mixture.requires_token_priming
    mixture.prime()
    means = {
        name: each["tokens_per_sample"] for name, each in mixture.state_dict()["order"]["datasets"].items()
    }
    assert means == {"raw": "2", "data": "4"}


def test_one_number_pins_all_raw_ones_and_no_token_shards() -> None:
    raw = Dataset.from_counts("raw", [10], raw_bytes=[100])
    mixture = source([raw, EXACT], {"raw": 1, "exact": 1}, primer=0.5)
    assert not mixture.requires_token_priming
    means = {
        name: each["tokens_per_sample"] for name, each in mixture.state_dict()["order"]["datasets"].items()
    }
    assert means == {"raw": "5", "exact": "400"}


def test_priming_again_changes_nothing() -> None:
    calls = []

    def measure(payload: Any) -> int:
        calls.append(payload)
        return 3

    mixture = source([texts("data", [2] * 6)], {"data": 1}, measure=measure)
    mixture.prime()
    before, count = mixture.state_dict(), len(calls)
    mixture.prime()
    assert (mixture.state_dict(), len(calls)) == (before, count)
    restored = source([texts("data", [2] * 6)], {"data": 1}, measure=measure)
    restored.load_state_dict(before)
    restored.prime()
    assert len(calls) == count, "what was restored is not measured again"


def test_a_template_that_was_not_primed_stays_so() -> None:
    data = texts("data", [2] * 6)
    template = source([data], {"data": 1}, measure=len).state_dict()
    primed = source([data], {"data": 1}, measure=len)
    primed.prime()
    primed.load_state_dict(template)
    assert primed.requires_token_priming


def test_in_sample_mode_nothing_is_measured() -> None:
    mixture = StaticMixtureWorkSource([texts("data", [1])], {"data": 1})
    assert not mixture.requires_token_priming
    mixture.prime()
    chunk = mixture.next_chunk()
    assert chunk is not None
    assert chunk.target_mixture is None


def test_a_replay_comes_before_the_count_and_may_leave_samples_out() -> None:
    data = texts("data", [2] * 10 + [6] * 10)
    mixture = source([data], {"data": 1}, measure=lambda payload: payload["words"])

    def replay(payload: Any) -> Any:
        words = len(payload["text"].split())
        return {"words": 2 * words} if words == 6 else None

    mixture.prime(pre_tokenize_replay=replay)
    assert mixture.state_dict()["order"]["datasets"]["data"]["tokens_per_sample"] == "12"


@pytest.mark.parametrize("wrong", [None, -1, 2.5, True, "3"])
def test_a_measure_that_counts_nothing_is_refused(wrong: Any) -> None:
    mixture = source([texts("data", [1])], {"data": 1}, measure=lambda _: wrong)
    with pytest.raises(ValueError, match=r"measure: dataset 'data': expected a number of tokens, found"):
        mixture.prime()
    assert mixture.requires_token_priming


def test_what_is_measured_is_the_same_for_the_same_seed() -> None:
    data = texts("data", [length % 17 + 1 for length in range(4000)])
    estimation = TokenEstimation(measure=lambda payload: len(payload["text"]), calibration_samples=50)
    found = [measured_mean(data, estimation, seed, None) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_an_empty_dataset_gives_its_share_to_others_by_tokens_too() -> None:
    empty = Dataset.from_counts("empty", [], num_tokens=[])
    mixture = StaticMixtureWorkSource(
        [empty, SHORT],
        {"empty": 1, "short": 1},
        exhausted_policy="redistribute",
        token_estimation=TokenEstimation(),
    )
    assert mixture.total_samples == 600


def test_targets_are_the_weights_that_were_asked_for() -> None:
    mixture = source([EXACT, SHORT], {"exact": 3, "short": 0})
    chunk = mixture.next_chunk()
    assert chunk is not None
    assert chunk.target_mixture == {"exact": 1.0}
    assert chunk.mixture == {"exact": 1.0}


@pytest.mark.parametrize("field", ["text", "content"])
def test_the_counting_spec_names_field_and_added_tokens(tokenizer_json: Path, field: str) -> None:
    data = Dataset.from_dict("data", [[{field: "fox", "other": "fox fox fox"}] * 4])
    means = [
        measured_mean(data, TokenEstimation(), 0, CountingSpec(str(tokenizer_json), field, added))
        for added in (0, 2)
    ]
    assert means[1] == means[0] + 2
