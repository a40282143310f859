"""`tokenloom mixture plan` and its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.cli import main
from prep.catalog.errors import ConfigError
from runtime.work.config import load_mixture

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tmp_path: Path, catalog_folder: Path) -> Path:
    """Two datasets over the same catalog."""
    tree = {
        "unit": "tokens",
        "chunk_size": 10,
        "datasets": [
            {"name": "a", "path": str(catalog_folder), "weight": 0.75},
            {"name": "b", "path": str(catalog_folder), "weight": 0.25},
        ],
    }
    path = tmp_path / "mixture.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["mixture", "plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_plan_says_what_is_drawn_and_what_ends_the_run(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mixture", "plan", str(config)]) == 0
    text = capsys.readouterr().out
    assert "weights count tokens" in text
    assert "stopped by: b after " in text
    assert "token shares at the ends of the first 32 chunks were off by at most: a 0." in text
    assert "the same data: a, b" in text
    found = plan(capsys, str(config))
    often, once = found["datasets"]
    assert once["passes"] == 1.0
    assert once["ends_the_run"]
    assert often["passes"] == pytest.approx(3, rel=0.02)
    assert 0 < often["token_deviation"] < 0.2
    assert found["total_samples"] == often["drawn_samples"] + once["drawn_samples"]
    assert found["total_tokens"] == often["drawn_tokens"] + once["drawn_tokens"]


def test_fields_can_be_overridden(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, str(config), "--set", "stop_after_passes=2", "--set", "unit=samples")
    assert found["unit"] == "samples"
    assert found["datasets"][1]["passes"] == 2.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("unit=token", "unit: expected 'samples' or 'tokens', found 'token'"),
        ("unit=null", "unit: this field is required with several datasets"),
        ("chunk=3", "chunk: unknown field: did you mean 'chunk_size'"),
        ("chunk_size=0", "chunk_size: expected greater than or equal to 1, found 0"),
        ("datasets=[{name: a, paht: x}]", "datasets.0.paht: unknown field: did you mean 'path'"),
        ("datasets=[{name: a, path: x, weight: -1}]", "datasets.0.weight: expected greater than"),
    ],
)
def test_wrong_fields_are_named(config: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_mixture(config, [override])
    assert f"{config}: " in str(found.value)
    assert message in str(found.value)


def test_contradictions_are_refused_before_anything_runs(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["datasets"][0]["max_repeats"] = 2
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert main(["mixture", "plan", str(config)]) == 2
    assert "max_repeats: 'a': not a repeating dataset" in capsys.readouterr().err


def test_the_example_is_a_mixture() -> None:
    assert load_mixture(ROOT / "configs" / "mixture.yaml").unit == "tokens"
