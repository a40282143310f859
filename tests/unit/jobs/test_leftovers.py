"""A job that is killed while it writes leaves things only where the next run removes them."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.verify import verify_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.jobs.conftest import MakeJob, Result

    Command = Callable[..., Result]

DIES_WRITING = """
import os, signal, sys
from prep.catalog import commit

publish = commit.publish

def die(stream, temporary, path):
    if path.name == sys.argv[1]:
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    publish(stream, temporary, path)

commit.publish = die
from prep.pipeline import writer
writer.publish = die
from jobs.cli import main
main(["pretokenize", sys.argv[2], "--quiet"])
"""


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "job.json",
        "sources.jsonl",
        "test-00000-000001.arrow",
        "00000-000001.json",
        "shards.parquet",
        "sources.parquet",
        "catalog.json",
    ],
)
def test_a_killed_job_leaves_scratch_only_in_its_scratch_folder_and_the_next_run_removes_it(
    *, tokenloom: Command, job_file: MakeJob, source: Path, tmp_path: Path, name: str
) -> None:
    job = job_file(source, output={"shard_size": 1024})
    killed = subprocess.run([sys.executable, "-c", DIES_WRITING, name, str(job)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    out = tmp_path / "out"
    files = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    assert [path for path in files if "tmp" in path and not path.startswith("_job/tmp/")] == []
    assert not (out / "catalog.json").exists()
    assert tokenloom("pretokenize", job).code == 0
    assert verify_catalog(Catalog.open(out)).ok
    assert [path for path in out.rglob("*tmp*") if path.is_file()] == []
