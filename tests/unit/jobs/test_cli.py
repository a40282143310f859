"""The command line as a whole: help, versions, exit codes, what goes to which stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING

import pytest

from prep.catalog.errors import (
    ConfigError,
    InputError,
    IntegrityError,
    RefusedError,
    StoreError,
    TokenloomError,
    WorkerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]

COMMANDS = (["pretokenize"], ["catalog"], ["catalog", "show"], ["catalog", "verify"], ["inspect"])


def test_the_command_is_installed_under_its_name() -> None:
    (command,) = entry_points(group="console_scripts", name="tokenloom")
    assert command.value == "jobs.cli:main"


def test_help_names_every_command_and_exit_code(tokenloom: Command) -> None:
    result = tokenloom("--help")
    assert result.code == 0
    for word in ("pretokenize", "catalog", "inspect", "exit codes", "128+n"):
        assert word in result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(tokenloom: Command, command: list[str]) -> None:
    result = tokenloom(*command, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"tokenloom {' '.join(command)}" in result.out


def test_the_version_is_that_of_the_distribution(tokenloom: Command) -> None:
    assert tokenloom("--version") == (0, f"{version('tokenloom')}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["pretokenize"],
        ["pretokenize", "x", "--bogus"],
        ["catalog"],
        ["inspect", "x", "--doc", "y"],
    ],
)
def test_a_wrong_command_line_ends_with_2(tokenloom: Command, arguments: list[str]) -> None:
    result = tokenloom(*arguments)
    assert result.code == 2
    assert "usage: tokenloom" in result.out + result.err


def test_each_kind_of_error_has_its_exit_code() -> None:
    codes = {error.__name__: error.exit_code for error in (ConfigError, InputError, IntegrityError)}
    codes |= {error.__name__: error.exit_code for error in (RefusedError, WorkerError, StoreError)}
    assert codes == {
        "ConfigError": 2,
        "InputError": 3,
        "IntegrityError": 4,
        "RefusedError": 4,
        "WorkerError": 5,
        "StoreError": 5,
    }
    assert all(issubclass(error, TokenloomError) for error in (ConfigError, InputError, WorkerError))


def test_errors_are_one_message_on_standard_error_without_a_traceback(
    tokenloom_process: Command, tmp_path: Path
) -> None:
    result = tokenloom_process("pretokenize", tmp_path / "none.yaml")
    assert result.code == 2
    assert result.out == ""
    assert (
        result.err == f"tokenloom: error: {tmp_path}/none.yaml: cannot be read: No such file or directory\n"
    )


def test_a_job_says_its_result_on_standard_output_and_the_rest_on_standard_error(
    tokenloom_process: Command, job_file: MakeJob, source: Path, tmp_path: Path
) -> None:
    result = tokenloom_process("pretokenize", job_file(source), "--json")
    assert result.code == 0
    summary = json.loads(result.out)
    assert (summary["documents"], summary["worked"]) == (100, True)
    assert summary["path"] == str(tmp_path / "out")
    assert re.search(r"^\S+ \S+ INFO backend: ", result.err, re.MULTILINE)


def test_a_quiet_job_says_nothing_but_its_result(
    tokenloom_process: Command, job_file: MakeJob, source: Path
) -> None:
    result = tokenloom_process("pretokenize", job_file(source), "--quiet")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("test: done\n")


@pytest.mark.parametrize(
    ("lines", "sections", "code", "said"),
    [
        (["{}"], {}, 3, "a.jsonl"),
        (["no json"], {}, 3, "a.jsonl"),
        (
            ['{"text": "x"}'],
            {"output": {"dtype": "uint16"}, "tokenizer": {"eos_token": "<none>"}},
            2,
            "<none>",
        ),
        (['{"text": "x"}'], {"output": {"path": "/proc/none/out"}}, 5, "/proc/none"),
    ],
)
def test_the_exit_status_of_a_process_is_that_of_its_error(
    *,
    tokenloom_process: Command,
    job_file: MakeJob,
    tmp_path: Path,
    write_jsonl: WriteJsonl,
    lines: list[str],
    sections: dict[str, dict[str, str]],
    code: int,
    said: str,
) -> None:
    job = job_file(write_jsonl(tmp_path / "a.jsonl", lines), **sections)
    result = tokenloom_process("pretokenize", job, "--quiet")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("tokenloom: error: ")
    assert said in result.err
    assert "Traceback" not in result.err


def test_damage_ends_with_4(tokenloom_process: Command, catalog_folder: Path) -> None:
    min((catalog_folder / "shards").iterdir()).unlink()
    result = tokenloom_process("catalog", "verify", catalog_folder)
    assert result.code == 4
    assert "the file is missing" in result.out


def test_a_reader_that_goes_away_ends_the_command_quietly(catalog_folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "jobs.cli", "catalog", "show", "--json", str(catalog_folder)],
            check=False,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""
