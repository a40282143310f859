"""A pipeline's YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

from prep.catalog.errors import ConfigError
from runtime import Pipeline
from runtime.config import OPERATORS, load_pipeline
from runtime.work.config import load_source

if TYPE_CHECKING:
    from pathlib import Path

OPERATORS_GIVEN: list[Any] = [
    {"shuffle": {"buffer_size": 8, "seed": 3}},
    "ensure_mixture",
    {"pack_flat": {"max_length": 17, "algorithm": "wrap", "num_bins": None}},
    {"batch": {"microbatch_size": 4, "drop_last": False}},
]


@pytest.fixture
def config(tmp_path: Path, catalog_folder: Path) -> Path:
    tree = {
        "datasets": [{"name": "a", "path": str(catalog_folder)}],
        "seed": 5,
        "operators": OPERATORS_GIVEN,
        "options": {"canonical_replicas": 2, "mixture_config": {"mode": "weighted_random", "seed": 1}},
    }
    path = tmp_path / "stream.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def test_a_file_gives_the_same_batches_as_python(config: Path, tmp_path: Path) -> None:
    mixture = tmp_path / "mixture.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    mixture.write_text(yaml.safe_dump({"datasets": tree["datasets"], "seed": 5}), encoding="utf-8")
    options = load_pipeline(config).options
    written = (
        Pipeline(load_source(mixture))
        .shuffle(8, seed=3)
        .ensure_mixture()
        .pack_flat(17, algorithm="wrap")
        .batch(4, drop_last=False)
        .options(**options)
    )
    with Pipeline.from_config(config) as read, written:
        found = [batch.to_training()["input_ids"] for batch in read]
        expected = [batch.to_training()["input_ids"] for batch in written]
    assert len(found) == len(expected) > 10
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("operators.0=shufle", "operators.0: there is no operator 'shufle' (did you mean 'shuffle'?)"),
        (
            "operators.0.shuffle.bufer_size=3",
            "operators.0: shuffle: there is no 'bufer_size' (did you mean 'buf",
        ),
        (
            "operators.0.shuffle.buffer_size=0",
            "operators.0: shuffle: buffer_size: expected 1 or more, found 0",
        ),
        ("operators.0.shuffle.buffer_size=x", "operators.0: shuffle: buffer_size: expected int, found 'x'"),
        ("operators.0.shuffle.buffer_size=true", "shuffle: buffer_size: expected int, found True"),
        (
            "operators.0={shuffle: 3}",
            "operators.0: shuffle: expected arguments as `argument: value`, found 3",
        ),
        (
            "operators.0={shuffle: {}, batch: {}}",
            "operators.0: expected an operator as `name: {argument: value}`",
        ),
        ("operators.2={pack_flat: {}}", "operators.2: pack_flat: max_length: this argument is required"),
        (
            "operators.2.pack_flat.algorithm=wrp",
            "expected first_fit, best_fit, wrap, best_fit_wrap, found 'wrp'",
        ),
        ("operators.3=shuffle", "operators: the last one: expected batch, found shuffle"),
        ("operators=[]", "operators: should have at least 1 item"),
        ("options.runer=inline", "options: there is no 'runer' (did you mean 'runner'?)"),
        (
            "options.dp_degree=3",
            "options: dp_degree: expected a divisor of canonical_replicas (2): [1, 2]; found 3",
        ),
        ("options.dp_degree=a", "options: dp_degree: expected int, found 'a'"),
        ("options.mixture_config.mode=x", "options: mixture_config: 'x' is not a valid MixtureReadMode"),
        ("options.mixture_config.mod=x", "options: mixture_config: there is no 'mod' (did you mean 'mode'?)"),
        ("options=3", "options: expected options as `name: value`, found 3"),
        ("operatrs=[]", "operatrs: unknown field: did you mean 'operators'?"),
        ("datasets.0.wait=1", "datasets.0.wait: unknown field"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(config: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(config, [override])
    assert str(caught.value).startswith(f"{config}: ")
    assert message in str(caught.value)


def test_every_operator_that_can_be_named_is_a_method_of_the_same_name() -> None:
    assert all(hasattr(Pipeline, name) for name in OPERATORS)
