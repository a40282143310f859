"""`tokenloom mixture plan` and its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.cli import main
from prep.catalog.errors import ConfigError
from prep.index import build_catalog
from runtime.work.config import load_mixture, load_source

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
    assert "ends when: b completes pass 1" in text
    assert "deviation: of the share of tokens from the weight at the ends of the first " in text
    assert "note: a, b hold the same data" in text
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
        ("datasets=[{name: a, path: y, paht: x}]", "datasets.0.paht: unknown field: did you mean 'path'"),
        ("datasets=[{name: a, path: x, weight: -1}]", "datasets.0.weight: expected greater than"),
        ("datasets.1.weight=.nan", "datasets.1.weight: expected a finite number, found nan"),
        ("datasets.1.weight=true", "datasets.1.weight: expected a valid number, found True"),
        ("datasets.1.exhausted_policy=loop", "datasets.1.exhausted_policy: expected 'stop', 'repeat' or"),
        ("shuffle_block_size=all", "shuffle_block_size: expected auto, global, null or a whole number"),
        ("shuffle_block_size=[1]", "shuffle_block_size: expected auto, global, null or a whole number"),
        ("shuffle_shards='no'", "shuffle_shards: expected a valid boolean, found 'no'"),
        ("lane_assignment=random", "lane_assignment: expected 'permute' or 'modulo', found 'random'"),
        ("token_estimation.primer=mesure", "token_estimation.primer: expected measure, tokens per byte, or"),
        ("token_estimation.primer=-1", "token_estimation.primer: expected measure, tokens per byte, or"),
        ("token_estimation.calibration_samples=0", "calibration_samples: expected greater than"),
        ("datasets.2.weight=1", "datasets.2.weight=1: 2: expected the number of an entry, 0 to 1"),
        ("datasets.b.weight=1", "b: expected the number of an entry, 0 to 1"),
    ],
)
def test_wrong_fields_are_named(config: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_mixture(config, [override])
    assert str(found.value).startswith((f"{config}: ", "--set "))
    assert message in str(found.value)
    assert len(str(found.value).splitlines()) == 1


def test_contradictions_are_refused_before_anything_runs(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["datasets"][0]["max_repeats"] = 2
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert main(["mixture", "plan", str(config)]) == 2
    assert f"{config}: max_repeats: 'a': not a repeating dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["exhausted_policy=stop"], {"exhausted_policy": "stop", "stop_after_passes": 0}),
        (["exhausted_policy=repeat", "max_repeats=0"], {"exhausted_policy": "repeat", "max_repeats": 0}),
        (
            ["exhausted_policy=repeat", "datasets.1.exhausted_policy=stop"],
            {"exhausted_policy": {"a": "repeat", "b": "stop"}},
        ),
        (
            ["datasets.0.exhausted_policy=redistribute"],
            {"exhausted_policy": {"a": "redistribute", "b": "stop"}},
        ),
        (["stop_after_passes=2", "datasets.0.stop_after_passes=5"], {"stop_after_passes": {"a": 5, "b": 2}}),
        (["datasets.1.reshuffle_on_repeat=false"], {"reshuffle_on_repeat": {"a": True, "b": False}}),
        (["seed=-4", "shuffle_block_size=global"], {"seed": -4, "shuffle_block_size": "global"}),
        ([], {"exhausted_policy": "repeat", "stop_after_passes": 1, "unit": "tokens"}),
    ],
)
def test_a_file_says_what_the_arguments_say(
    config: Path, overrides: list[str], expected: dict[str, Any]
) -> None:
    order = load_source(config, overrides).state_dict()["order"]
    assert {name: order[name] for name in expected} == expected


def test_raw_datasets_are_measured_with_a_tokenizer(
    tmp_path: Path, tokenizer_json: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    rows = [json.dumps({"content": f"the quick brown fox {number}"}) for number in range(40)]
    (raw / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    build_catalog(raw, text_field="content")
    path = tmp_path / "mixture.yaml"
    path.write_text(yaml.safe_dump({"unit": "tokens", "datasets": [{"name": "raw", "path": str(raw)}]}))
    assert main(["mixture", "plan", str(path)]) == 2
    assert "give --tokenizer" in capsys.readouterr().err
    with_tokenizer = [str(path), "--tokenizer", str(tokenizer_json), "--text-field", "content"]
    found = plan(capsys, *with_tokenizer)
    assert not found["datasets"][0]["tokens_are_exact"]
    assert found["datasets"][0]["tokens"] > 40 * 4
    pinned = plan(capsys, str(path), "--set", "token_estimation.primer=0.5")
    assert pinned["datasets"][0]["tokens"] == sum(len(json.loads(row)["content"]) for row in rows) // 2


def test_a_dataset_that_is_not_there_is_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mixture", "plan", str(config), "--set", "datasets.1.path=nowhere"]) == 4
    assert "nowhere: catalog.json is missing" in capsys.readouterr().err


def test_the_example_is_a_mixture() -> None:
    assert load_mixture(ROOT / "configs" / "mixture.yaml").unit == "tokens"
