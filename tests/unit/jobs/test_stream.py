"""`tokenloom stream`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from runtime.config import load_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.jobs.conftest import Result


@pytest.fixture
def config(tmp_path: Path, catalog_folder: Path) -> Path:
    """Two datasets over one catalog, packed."""
    tree = {
        "unit": "samples",
        "chunk_size": 20,
        "datasets": [
            {"name": "often", "path": str(catalog_folder), "weight": 3},
            {"name": "once", "path": str(catalog_folder), "weight": 1},
        ],
        "operators": [{"pack_flat": {"max_length": 65}}, {"batch": {"microbatch_size": 4}}],
    }
    path = tmp_path / "stream.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def streamed(tokenloom: Callable[..., Result], *arguments: Any) -> dict[str, Any]:
    result = tokenloom("stream", *arguments, "--json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_q73_what_is_reported_adds_up(tokenloom: Callable[..., Result], config: Path) -> None:
    found = streamed(tokenloom, config)
    for counts in found["ledger"].values():
        assert counts["taken"] == counts["delivered"] + counts["buffered"] + sum(counts["lost"].values())
    assert found["ledger"]["documents"]["taken"] == load_pipeline(config).source().total_samples
    assert found["tokens"] == found["ledger"]["tokens"]["delivered"]
    assert found["slots"] == found["batches"] * 4 * 65
    assert found["fill"] == found["tokens"] / found["slots"]
    often, once = found["components"]
    assert (often["name"], often["target"], once["name"], once["target"]) == ("often", 0.75, "once", 0.25)
    assert often["documents"] + once["documents"] == found["ledger"]["documents"]["delivered"]
    assert often["document_share"] == pytest.approx(0.75, abs=0.02)
    assert often["token_share"] + once["token_share"] == pytest.approx(1)
    assert 0 < found["waiting_seconds"] + found["array_seconds"] <= found["seconds"]
    assert found["memory"]["private"] > 0


def test_rows_are_decoded_piece_by_piece(tokenloom: Callable[..., Result], config: Path) -> None:
    found = streamed(tokenloom, config, "--steps", 3, "--decode", 6)
    assert (found["batches"], found["rows"], len(found["decoded"])) == (3, 12, 6)
    for row in found["decoded"]:
        sizes = [piece["stop_token"] - piece["first_token"] for piece in row["pieces"]]
        assert sum(sizes) + row["padding"] == 65
        for piece in row["pieces"]:
            assert piece["source_file"] in ("a.jsonl", "b.jsonl")
            if piece["first_token"] == 0:
                assert piece["text"].startswith(f"{piece['source_file']} the quick")


def test_the_text_says_what_a_person_wants_to_know(tokenloom: Callable[..., Result], config: Path) -> None:
    result = tokenloom("stream", config, "--steps", 2, "--decode", 1)
    assert result.code == 0
    for expected in (
        "row 0: ",
        "a CPU-second",
        "waiting for batches",
        "places are filled",
        "often",
        "lanes: 1",
    ):
        assert expected in result.out
    assert "+ buffered " in result.out


def test_fields_can_be_overridden(tokenloom: Callable[..., Result], config: Path) -> None:
    found = streamed(tokenloom, config, "--steps", 1, "--set", "operators.1.batch.microbatch_size=2")
    assert found["rows"] == 2


def test_no_steps_give_an_empty_report(tokenloom: Callable[..., Result], config: Path) -> None:
    found = streamed(tokenloom, config, "--steps", 0)
    assert (found["batches"], found["fill"], found["ledger"]["documents"]["taken"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "-1"], "--steps: expected 0 or more, found -1"),
        (["--set", "options.runner=thread"], "options: runner: expected inline or threads, found 'thread'"),
        (["--set", "datasets.0.path=/nowhere"], "/nowhere"),
    ],
)
def test_what_is_wrong_ends_in_one_message(
    tokenloom: Callable[..., Result], config: Path, arguments: list[str], message: str
) -> None:
    result = tokenloom("stream", config, *arguments)
    assert result.code in (2, 4)
    assert message in result.err
    assert "Traceback" not in result.err
