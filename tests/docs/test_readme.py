"""The documentation says what is true: its examples run, and every field and command is in it."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.cli import build_parser
from prep.config import JobConfig, Section, load_config, validate
from prep.index import build_catalog
from runtime.config import load_pipeline
from runtime.work.config import MixtureConfig, load_mixture

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's first command has been run."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "configs").symlink_to(ROOT / "configs")
    command = [sys.executable, "-m", "jobs.cli", "pretokenize", "configs/quickstart.yaml"]
    subprocess.run([*command, "--set", "processing.workers=2"], cwd=folder, check=True, capture_output=True)
    (folder / "raw").mkdir()
    (folder / "raw" / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n', encoding="utf-8")
    build_catalog(folder / "raw")
    return folder


def test_the_quickstart_is_verified_and_its_commands_run(quickstart: Path) -> None:
    shown = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("tokenloom ")]
    assert len(shown) >= 3
    for line in shown:
        command = [sys.executable, "-m", "jobs.cli", *line.split()[1:]]
        result = subprocess.run(command, cwd=quickstart, capture_output=True, text=True, check=True)
        assert result.stdout


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_examples_run(quickstart: Path, number: int) -> None:
    script = quickstart / f"example_{number}.py"
    script.write_text(blocks("python")[number], encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=quickstart,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_configuration_that_is_shown_is_valid() -> None:
    for block in blocks("yaml"):
        validate(yaml.safe_load(block))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_that_is_shipped_loads(path: Path) -> None:
    {"mixture": load_mixture, "stream": load_pipeline}.get(path.stem, load_config)(path)


def fields(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
        if below and prefix.count(".") == 0:
            yield from fields(below[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("field", sorted({*fields(JobConfig), *fields(MixtureConfig)}))
def test_every_field_is_in_the_table(field: str) -> None:
    table = "\n".join(line for line in README.splitlines() if line.startswith("| `"))
    assert f"`{field}`" in table or f"`{field.rpartition('.')[2]}`" in table


def commands(parser: argparse.ArgumentParser, name: str = "tokenloom") -> Iterator[str]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield name
    for action in nested:
        for word, below in action.choices.items():
            yield from commands(below, f"{name} {word}")


@pytest.mark.parametrize("command", sorted(commands(build_parser())))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert command in README
