"""One job from start to finish. Knows stages and files, no executor and no terminal.

Heavy libraries are loaded inside `run_job`, after the tokenizer processes have been started and told what to
load: they take as long.
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prep.catalog.commit import store_errors
from prep.catalog.errors import IntegrityError
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS, SOURCES, TOKENIZER
from prep.lock import lock_folder
from prep.pipeline.runner import RunnerStart
from prep.record import JobRecord
from prep.tokenizers.definition import load_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prep.config import JobConfig
    from prep.finish import Summary


@dataclass
class Progress:
    """How far a job is.

    Attributes:
        files, total_files: source files passed, and all.
        source_bytes, total_bytes: of the source files.
        documents, tokens, text_bytes: written or about to be, since the job began.
        fresh_tokens: those of this run.
        shards: committed.
    """

    files: int = 0
    total_files: int = 0
    source_bytes: int = 0
    total_bytes: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    fresh_tokens: int = 0
    shards: int = 0


def run_job(
    config: JobConfig,
    *,
    restart: bool = False,
    verify_all: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Summary:
    """Run a job, continue one that was interrupted, or find that it is finished.

    Args:
        config: the job.
        restart: remove what the output folder holds of an earlier job, and begin anew.
        verify_all: check the checksum of every shard that is committed, not only the last one's.
        on_progress: called after each block.

    Raises:
        TokenloomError: see `prep.catalog.errors`; its message says what to do.
    """
    began = time.monotonic()
    folder = output_folder(config)
    with store_errors(folder):
        (folder / JOB_FOLDER).mkdir(parents=True, exist_ok=True)
    with lock_folder(folder / JOB_FOLDER, "give another output.path"):
        if restart:
            with store_errors(folder):
                _clear(folder)
        if (folder / HEADER).exists():
            from prep.run import finished_summary  # noqa: PLC0415

            summary = finished_summary(config, folder, verify_all=verify_all)
        else:
            record = JobRecord(folder)
            with _run_log(folder), RunnerStart(config, record.refused_backends()) as start:
                definition = None
                if config.tokenizer.path is not None:
                    definition = load_definition(config.tokenizer.path)
                    start.load(definition)
                from prep.run import JobRun  # noqa: PLC0415

                run = JobRun(config, folder, start, verify_all=verify_all, on_progress=on_progress)
                summary = run.run(definition)
        summary.seconds = time.monotonic() - began
        return summary


class _RunLog(logging.FileHandler):
    """The job folder's log; a job does not end because its log cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        del record

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def _run_log(folder: Path) -> Iterator[None]:
    """Write what is logged to the job folder too, one run after the other."""
    path = folder / JOB_FOLDER / "run.log"
    with store_errors(path):
        handler = _RunLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("prep")
    logger.addHandler(handler)
    try:
        yield
    except BaseException as error:
        ended = f"ended by {type(error).__name__}: {error}"
        handler.emit(logging.LogRecord("prep", logging.ERROR, __file__, 0, ended, None, None))
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def output_folder(config: JobConfig) -> Path:
    """Where a job writes."""
    return Path(config.output.path.removeprefix("file://"))


def _clear(folder: Path) -> None:
    """Remove a job: the header first, so that no half catalog is ever readable, and its record last.

    Where nothing else tells that the folder is a job's, files that only have the names of a job's stay.
    """
    record, shards = JobRecord(folder), list((folder / "shards").glob("*-?????-??????.arrow"))
    journal = (folder / JOB_FOLDER / "journal").glob("*.json")
    if record.exists() or shards or any(journal) or _is_catalog(folder):
        for name in (HEADER, SHARDS, SOURCES, TOKENIZER):
            (folder / name).unlink(missing_ok=True)
    for path in shards:
        path.unlink()
    for path in (folder / JOB_FOLDER).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock" and path != record.path:
            path.unlink()
    record.path.unlink(missing_ok=True)


def _is_catalog(folder: Path) -> bool:
    from prep.catalog.catalog import Catalog  # noqa: PLC0415

    try:
        Catalog.open(folder)
    except IntegrityError:
        return False
    return True
