"""Starting the stages: which backend, how many processes, and that the backend agrees with the reference."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self

from prep.catalog.errors import ConfigError, RefusedError
from prep.pipeline.inline import InlineRunner
from prep.pipeline.resources import default_readers, worker_count
from prep.pipeline.settings import EncoderSettings
from prep.pipeline.supervisor import Supervisor
from prep.readers import compression_of
from prep.tokenizers.backends import FAST, REFERENCE, version_of
from prep.tokenizers.probes import first_difference

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from prep.config import JobConfig
    from prep.pipeline.messages import Failed, Ready
    from prep.pipeline.plan import Feed
    from prep.pipeline.processes import Started
    from prep.pipeline.settings import StageSettings
    from prep.pipeline.tokenizer import TokenBlock
    from prep.sources.listing import SourceFile
    from prep.tokenizers.definition import TokenizerDefinition

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs the reading and tokenizing stages over the work of a feed."""

    def expect_streams(self, count: int) -> None:
        """Start early what so many files that are read as streams will need."""

    def ready(self) -> Ready:
        """Wait until the backend is loaded."""

    def configure(self, settings: StageSettings) -> None:
        """Give the stages their settings; comes before `results`."""

    def results(self, feed: Feed) -> Generator[TokenBlock | Failed, None, None]:
        """Work through a feed; results in the order of the document stream."""

    def close(self) -> None:
        """End whatever runs."""


class RunnerStart:
    """A runner whose processes load their encoder while the job is still being prepared.

    Args:
        config: the job.
        definition: the tokenizer.
        probes: strings on which the backend is compared with the reference.
        refused: backends that this job must not use, because they contradicted the reference.
        started: tokenizer processes that were started early.

    Attributes:
        backend: the backend's name.
        version: of its library, after `confirm`.
        reason: why this backend was taken.
    """

    def __init__(
        self,
        config: JobConfig,
        definition: TokenizerDefinition,
        probes: Sequence[str],
        refused: Sequence[str] = (),
        started: list[Started] | None = None,
    ) -> None:
        wanted = config.tokenizer.backend
        self.backend, self.reason = first_choice(wanted, refused)
        self._may_fall_back = wanted == "auto"
        processing = config.processing
        self.workers = worker_count(processing)
        self.readers = default_readers(self.workers) if processing.readers == "auto" else processing.readers
        self._settings = EncoderSettings(
            self.backend,
            match_control_tokens=config.tokenizer.control_tokens_in_text == "token",
            probes=tuple(probes),
        )
        self._started = [] if started is None else started
        self._streams = 0
        self._encoding_json = definition.encoding_json
        self.version = ""
        self.runner: Runner = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def _start(self) -> Runner:
        if self.workers == 0:
            return InlineRunner(self._settings, self._encoding_json)
        return Supervisor(self._settings, self._encoding_json, self.workers, self.readers, self._started)

    def expect_streams(self, files: Sequence[SourceFile]) -> None:
        """Start early what the files of a source list will need that are read as streams."""
        self._streams = sum(file.format == "arrow" or compression_of(file.name) is not None for file in files)
        self.runner.expect_streams(self._streams)

    def confirm(self, expected: Sequence[Sequence[int]]) -> Runner:
        """Wait for the backend and compare it with the reference on the probes.

        Raises:
            ConfigError: the backend that the configuration names cannot be used or differs.
        """
        ready = self.runner.ready()
        problem = ready.error
        if not problem:
            difference = first_difference(self._settings.probes, expected, ready.probe_ids)
            problem = f"{self.backend} differs from the reference on {difference}" if difference else ""
        if problem and self.backend != REFERENCE and self._may_fall_back:
            self.runner.close()
            self.backend, self.reason = REFERENCE, problem
            self._settings = replace(self._settings, backend=REFERENCE)
            self.runner = self._start()
            self.runner.expect_streams(self._streams)
            return self.confirm(expected)
        if problem:
            raise ConfigError(f"tokenizer.backend: {self.backend}: {problem}")
        self.version = version_of(self.backend)
        return self.runner


def first_choice(wanted: str, refused: Sequence[str]) -> tuple[str, str]:
    """The backend to begin with, and why."""
    if wanted in refused:
        raise RefusedError(
            f"tokenizer.backend: {wanted} gave other ids than the reference in this job, so it cannot go on "
            "with it. Set tokenizer.backend: tokenizers and begin anew with --restart"
        )
    if wanted != "auto":
        return wanted, "the configuration says so"
    if FAST in refused:
        return REFERENCE, f"{FAST} gave other ids than the reference in this job"
    if importlib.util.find_spec(FAST) is None:
        return REFERENCE, f"{FAST} is not installed (`pip install tokenloom[fast]`)"
    return FAST, f"{FAST} supports this tokenizer and agrees with the reference on the probes"
