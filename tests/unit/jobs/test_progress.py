"""How far a job is, on a terminal and in a log."""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from jobs.progress import ProgressDisplay, short
from prep.job import Progress, run_job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeConfig

STATE = Progress(
    files=1,
    total_files=2,
    source_bytes=50_000_000,
    total_bytes=200_000_000,
    documents=16_120,
    tokens=2_025_349,
    fresh_tokens=2_025_349,
)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (7, "7"), (999, "999"), (999.9, "1k"), (1234, "1.23k"), (16_120, "16.1k"), (598_000, "598k"),
     (999_950, "1M"), (2_025_349, "2.03M"), (3.2e11, "320G"), (1.5e13, "15T")],
)  # fmt: skip
def test_counts_are_short(number: float, shown: str) -> None:
    assert short(number) == shown


def test_a_terminal_of_80_columns_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, line = os.openpty()
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(screen, "rb", buffering=0) as shown, os.fdopen(line, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ProgressDisplay(quiet=False) as display:
            display.show(STATE)
        terminal.flush()
        output = b""
        while b"\n" not in output:  # a terminal hands over what it has by now
            output += shown.read(10_000)
        drawn = output.decode().split("\r")[-2].strip()
    assert len(drawn) <= 80
    for part in ("25%", "200MB", " left", "1/2 files", "16.1k docs", "2.03M tokens", " tokens/s"):
        assert part in drawn


def test_elsewhere_a_line_comes_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.progress.LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO), ProgressDisplay(quiet=False) as display:
        display.show(Progress(total_files=2, total_bytes=200_000_000))
        display.show(STATE)
    assert "25.0% of 200,000,000 bytes, 1/2 files, 16.1k docs, 2.03M tokens" in caplog.messages[-1]
    assert caplog.messages[-1].endswith(" s left")


def test_quiet_says_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.progress.LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO), ProgressDisplay(quiet=True) as display:
        display.show(STATE)
    assert caplog.messages == []


def test_a_job_reports_all_of_it_at_the_end(make_config: MakeConfig, tmp_path: Path) -> None:
    """Also of files whose readers do not tell how far they are, such as an array."""
    (tmp_path / "a.json").write_text('[{"text": "the quick"}, {"text": "brown fox"}]')
    (tmp_path / "b.jsonl").write_text('{"text": "jumps"}\n')
    seen: list[tuple[int, ...]] = []
    run_job(
        make_config([tmp_path / "b.jsonl", tmp_path / "a.json"]),
        on_progress=lambda state: seen.append(
            (state.files, state.source_bytes, state.documents, state.shards)
        ),
    )
    size = sum(path.stat().st_size for path in (tmp_path / "a.json", tmp_path / "b.jsonl"))
    assert seen[-1] == (2, size, 3, 1)
