"""Any number of files and any size of block go with any number of workers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.jobs.conftest import MakeJob

FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from jobs.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
PILING_UP = """
import time
from prep.pipeline.supervisor import Supervisor

add, fill, added = Supervisor._add_block, Supervisor._fill_workers, [0.0]

def note(self, *arguments):
    added[0] = time.monotonic()
    add(self, *arguments)

def fill_late(self):
    if time.monotonic() - added[0] > 0.3:
        fill(self)

Supervisor._add_block, Supervisor._fill_workers = note, fill_late
"""
"""Has the tokenizers get work only when no more comes from the readers, as if they were much slower."""
SECONDS = 30


def run_with_few_descriptors(folder: Path, job: Path, before: str = "") -> dict[str, Any]:
    """A job in a process that may open 200 descriptors; a hundred are plenty for the work itself."""
    script = folder / "few_descriptors.py"
    script.write_text(before + FEW_DESCRIPTORS)
    done = subprocess.run(
        [sys.executable, str(script), "pretokenize", str(job), "--json", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("before", ["", PILING_UP], ids=["", "slow tokenizers"])
@pytest.mark.parametrize("documents", ["none", "block"])
def test_hundreds_of_small_streams_need_few_descriptors(
    job_file: MakeJob, tmp_path: Path, documents: str, before: str
) -> None:
    """Case Q67: any ratio of files to workers; there it is 2,000 .gz files and 32 workers."""
    (tmp_path / "in").mkdir()
    for number in range(300):
        data = gzip.compress(b'{"text": "file %d"}\n{"text": "x"}\n' % number, 1)
        (tmp_path / "in" / f"{number:03}.jsonl.gz").write_bytes(data)
    processing = {"workers": 1, "shuffle": {"documents": documents}}
    job = job_file(tmp_path / "in" / "*.gz", processing=processing)
    summary = run_with_few_descriptors(tmp_path, job, before)
    assert (summary["documents"], summary["sources"]) == (600, 300)


def test_small_blocks_need_few_descriptors(job_file: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "the quick brown fox"}\n' * 20_000)
    job = job_file(tmp_path / "a.jsonl", processing={"workers": 1, "batch_bytes": 500})
    assert run_with_few_descriptors(tmp_path, job)["documents"] == 20_000
