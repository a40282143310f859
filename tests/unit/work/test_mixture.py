"""Weights: what is accepted, and how what is not is named."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from runtime.work import MixtureSpec


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (math.nan, "finite number, found nan"),
        (math.inf, "finite number, found inf"),
        (-math.inf, "finite number, found -inf"),
        (-0.5, "0 or more, found -0.5"),
        (-1, "0 or more, found -1"),
        (True, "finite number, found True"),
        ("0.5", "finite number, found '0.5'"),
        (None, "finite number, found None"),
    ],
)
def test_a_weight_that_is_none_is_refused_with_its_name(weight: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"mixture: 'web': expected .*{said}"):
        MixtureSpec({"code": 1, "web": weight})


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": 0.0, "b": -0.0}])
def test_at_least_one_weight_is_above_zero(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected at least one weight above 0"):
        MixtureSpec(weights)


@pytest.mark.parametrize(
    ("components", "said"),
    [
        (["web", "code", "prose"], "no weight for 'prose'"),
        (["web"], r"no component 'code'; components are web"),
        (["web", "codes"], r"no component 'code' \(did you mean 'codes'\?\)"),
        (["wbe", "code"], r"no weight for 'wbe'; no component 'web' \(did you mean 'wbe'\?\)"),
    ],
)
def test_missing_and_unknown_names_are_all_listed(components: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MixtureSpec({"web": 1, "code": 2}).validate_for(components)


def test_weights_need_not_sum_to_one() -> None:
    spec = MixtureSpec({"a": 40, "b": 30.0, "c": 10, "d": 0})
    assert spec.normalized == {"a": 0.5, "b": 0.375, "c": 0.125, "d": 0.0}
    assert list(spec.normalized_for(["d", "c", "b", "a"])) == ["d", "c", "b", "a"]
    assert sum(MixtureSpec(dict.fromkeys("abcdefghij", 0.1)).normalized.values()) == pytest.approx(1)


def test_numpy_numbers_are_numbers() -> None:
    assert MixtureSpec({"a": np.float64(1), "b": np.float64(3)}).normalized == {"a": 0.25, "b": 0.75}
    assert MixtureSpec({"a": np.float32(1), "b": np.int64(3)}).normalized == {"a": 0.25, "b": 0.75}


def test_extreme_weights_keep_their_proportion() -> None:
    shares = MixtureSpec({"a": 1, "b": 1e-6}).normalized
    assert shares["b"] / shares["a"] == pytest.approx(1e-6)
