"""kill -9 before every step that changes the output folder: the next run goes on from there (P3, P4)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prep.job import _clear

if TYPE_CHECKING:
    from types import ModuleType

    from tests.faults.conftest import MakeJob
    from tests.faults.harness import Job

SCRIPT = Path(__file__).with_name("crash_points.py")
SECONDS = 200


@pytest.fixture(scope="module")
def _reports() -> dict[str, list[dict[str, Any]]]:
    return {}


@pytest.fixture
def tiny(make_job: MakeJob) -> Job:
    """A job of a few shards in one process; its first record is a bad one."""
    return make_job("tiny", workers=0, batch_bytes=3_000)


@pytest.fixture
def reports(tiny: Job, tmp_path: Path, _reports: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What became of the job for each step; made once."""
    if "all" not in _reports:
        script = [sys.executable, str(SCRIPT), str(tiny.config), str(tmp_path)]
        run = subprocess.run(script, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stderr
        _reports["all"] = [json.loads(line) for line in run.stdout.splitlines()]
    return _reports["all"]


def test_every_step_was_a_crash_point(reports: list[dict[str, Any]]) -> None:
    assert len(reports) > 30
    assert [report["killed"] for report in reports] == [True] * (len(reports) - 1) + [False]


def test_p3_a_rerun_after_any_crash_finishes_with_the_same_bytes(
    reports: list[dict[str, Any]], tiny: Job, harness: ModuleType
) -> None:
    failed = [report["step"] for report in reports if report["again"] != 0]
    assert failed == []
    differing = [
        report["step"] for report in reports if harness.digests(Path(report["folder"])) != tiny.expected
    ]
    assert differing == []


def test_p3_committed_shards_are_never_written_again(reports: list[dict[str, Any]]) -> None:
    assert [report["step"] for report in reports if not report["kept"]] == []


def test_p3_a_crash_leaves_only_final_files_and_scratch(
    reports: list[dict[str, Any]], harness: ModuleType
) -> None:
    """DESIGN 4: leftovers lie only under _job/tmp."""
    stray = {report["step"]: harness.stray(report["left"]) for report in reports}
    assert {step: names for step, names in stray.items() if names} == {}


def test_p3_a_rerun_removes_whatever_a_crash_left(reports: list[dict[str, Any]], harness: ModuleType) -> None:
    stray = {report["step"]: harness.stray(report["after"]) for report in reports}
    assert {step: names for step, names in stray.items() if names} == {}
    assert {name for report in reports for name in report["after"] if name.startswith("_job/tmp/")} == set()


def test_p4_a_header_is_there_only_when_everything_else_is(reports: list[dict[str, Any]]) -> None:
    complete = set(reports[-1]["after"])
    for report in reports:
        if report["finished"]:
            assert set(report["left"]) >= complete


def test_p3_a_restart_that_is_killed_is_done_by_another(
    tiny: Job, harness: ModuleType, tmp_path: Path
) -> None:
    """Up to the moment in which the earlier job is gone; a run without --restart finishes it or refuses."""
    script = [sys.executable, str(SCRIPT), str(tiny.config), str(tmp_path), "restart"]
    run = subprocess.run(script, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert run.returncode == 0, run.stderr
    reports = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(reports) > 10
    assert all(report["killed"] for report in reports)
    assert [report["step"] for report in reports if report["again"] != 0] == []
    for report in reports:
        assert harness.digests(Path(report["folder"])) == tiny.expected


def test_a_restart_removes_its_record_last(tiny: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nobody could tell that what is left is a job's."""
    tiny.run()
    removed = []
    unlink = Path.unlink

    def watch(path: Path, **options: Any) -> None:
        removed.append(path.name)
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", watch)
    _clear(tiny.output)
    assert removed[0] == "catalog.json"
    assert removed[-1] == "job.json"
