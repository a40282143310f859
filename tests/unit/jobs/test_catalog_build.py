"""`tokenloom catalog build`, and what show, verify and inspect say of catalogs of raw files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from prep.catalog.names import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WriteJsonl
    from tests.unit.jobs.conftest import Result

    Command = Callable[..., Result]


@pytest.fixture
def raw(tmp_path: Path, write_jsonl: WriteJsonl) -> Path:
    folder = tmp_path / "raw"
    write_jsonl(folder / "a.jsonl", [{"text": "é", "n": 1}, {"text": "b"}, {"text": None}])
    write_jsonl(folder / "b.jsonl", [{"text": "c" * 1000}])
    return folder


def test_it_says_what_was_counted_and_what_comes_next(tokenloom: Command, raw: Path) -> None:
    result = tokenloom("catalog", "build", raw, "--name", "mine")
    assert (result.code, result.err) == (0, "")
    for shown in ("mine: done", "rows    4", "1,003 bytes (text, 1 rows without)", "files   2 with"):
        assert shown in result.out
    assert f"tokenloom catalog show {raw}" in result.out


def test_again_it_says_that_there_is_nothing_to_do(tokenloom: Command, raw: Path) -> None:
    tokenloom("catalog", "build", raw)
    result = tokenloom("catalog", "build", raw)
    assert result.code == 0
    assert "nothing to do" in result.out


def test_the_summary_as_json(tokenloom: Command, raw: Path) -> None:
    summary = json.loads(tokenloom("catalog", "build", raw, "--json").out)
    assert summary["rows"] == 4
    assert summary["worked"] is True


def test_changed_files_are_a_refusal_until_rebuilt(tokenloom: Command, raw: Path) -> None:
    tokenloom("catalog", "build", raw)
    (raw / "c.jsonl").write_text("{}\n")
    for command in (("catalog", "build"), ("inspect", "--doc", 0)):
        result = tokenloom(*command, raw)
        assert result.code == 4
        assert "c.jsonl is new" in result.err
        assert "--rebuild" in result.err
    assert tokenloom("catalog", "verify", raw).code == 4
    assert tokenloom("catalog", "build", raw, "--rebuild").code == 0
    assert tokenloom("catalog", "verify", raw).code == 0


def test_show_prints_rows_text_and_files(tokenloom: Command, raw: Path) -> None:
    tokenloom("catalog", "build", raw)
    result = tokenloom("catalog", "show", raw)
    assert result.code == 0
    assert "1,003 bytes in the field 'text', which 1 rows lack" in result.out
    assert "a.jsonl" in result.out
    assert json.loads(tokenloom("catalog", "show", raw, "--json").out)["header"]["kind"] == "raw"


def test_verify_prints_rows_and_no_tokens(tokenloom: Command, raw: Path) -> None:
    tokenloom("catalog", "build", raw)
    assert tokenloom("catalog", "verify", raw).out == "raw: 2 shards, 4 documents: verified\n"
    data = (raw / "b.jsonl").read_bytes()
    (raw / "b.jsonl").write_bytes(data.replace(b"cc", b"cd", 1))
    result = tokenloom("catalog", "verify", raw)
    assert result.code == 4
    assert "b.jsonl: expected" in result.out


def test_inspect_prints_a_row_as_it_lies(tokenloom: Command, raw: Path) -> None:
    tokenloom("catalog", "build", raw)
    assert json.loads(tokenloom("inspect", raw, "--doc", 0, "--json").out) == {"text": "é", "n": 1}
    result = tokenloom("inspect", raw, "--shard", 1, "--row", 0)
    assert result.code == 0
    assert result.out.startswith("shard          b.jsonl\nrow            0\ntext           ccc")
    assert tokenloom("inspect", raw, "--doc", 4).code == 3
    assert tokenloom("inspect", raw, "--doc", 0, "--decode").code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--workers", "x"], 2),
        (["--workers", "-1"], 2),
        (["--format", "txt"], 2),
        (["--text-field", "n"], 3),
    ],
)
def test_wrong_arguments_and_damage_have_their_exit_status(
    tokenloom: Command, raw: Path, arguments: list[str], code: int
) -> None:
    assert tokenloom("catalog", "build", raw, *arguments).code == code
    assert not (raw / HEADER).exists()


def start(raw: Path) -> subprocess.Popen[str]:
    """A build whose two processes are at work."""
    command = [sys.executable, "-m", "jobs.cli", "catalog", "build", str(raw), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(scanners(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def scanners(pid: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A file that cannot be read to its end before the test is over."""
    folder = tmp_path / "slow"
    folder.mkdir()
    line = json.dumps({"text": "x" * 100}) + "\n"
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_text(line * 1_500_000)
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_within_seconds_and_leaves_nothing(slow: Path, number: int, code: int) -> None:
    process = start(slow)
    children = scanners(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "The same command begins anew." in err
    assert not (slow / HEADER).exists()
    assert psutil.wait_procs(children, timeout=10)[1] == []


def test_after_a_kill_the_processes_go_and_the_next_run_makes_the_catalog(slow: Path) -> None:
    process = start(slow)
    children = scanners(process.pid)
    process.kill()
    process.communicate(timeout=20)
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert not (slow / HEADER).exists()
    for path in sorted(slow.glob("*.jsonl")):
        path.write_text('{"text": "x"}\n')
    command = [sys.executable, "-m", "jobs.cli", "catalog", "build", str(slow)]
    assert subprocess.run(command, check=True, capture_output=True).returncode == 0
