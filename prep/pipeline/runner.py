"""Starting the stages: which backend, how many processes, and that the backend agrees with the reference."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING, Protocol, Self

from prep.catalog.errors import ConfigError, RefusedError
from prep.pipeline.resources import default_readers, worker_count
from prep.pipeline.settings import EncoderSettings
from prep.pipeline.supervisor import Supervisor
from prep.tokenizers.backends import FAST, REFERENCE, version_of
from prep.tokenizers.probes import first_difference, probe_strings

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from prep.config import JobConfig
    from prep.pipeline.messages import Failed, Ready
    from prep.pipeline.plan import Feed
    from prep.pipeline.settings import StageSettings
    from prep.pipeline.tokenizer import TokenBlock
    from prep.resolve import Resolved
    from prep.tokenizers.definition import TokenizerDefinition

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs the reading and tokenizing stages over the work of a feed."""

    def load(self, encoder: EncoderSettings, encoding_json: str) -> None:
        """Have the backend loaded; comes before `ready`."""

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
    """A runner whose processes start and load their encoder while the job is still being prepared.

    This module and what it imports are light, so that a job can make this first and load its own libraries
    after.

    Args:
        config: the job.
        refused: backends that this job must not use, because they contradicted the reference.

    Attributes:
        backend: the backend's name.
        version: of its library, after `confirm`.
        reason: why this backend was taken.

    Raises:
        RefusedError: the configuration names a backend that is refused.
    """

    def __init__(self, config: JobConfig, refused: Sequence[str] = ()) -> None:
        wanted = config.tokenizer.backend
        self.backend, self.reason = first_choice(wanted, refused)
        self._may_fall_back = wanted == "auto"
        self._match_control_tokens = config.tokenizer.control_tokens_in_text == "token"
        processing = config.processing
        self.workers = worker_count(processing)
        self.readers = default_readers(self.workers) if processing.readers == "auto" else processing.readers
        self._streams = 0
        self._encoding_json = ""
        self._probes: tuple[str, ...] = ()
        self.version = ""
        self.runner = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def _start(self) -> Runner:
        if self.workers == 0:
            from prep.pipeline.inline import InlineRunner  # noqa: PLC0415 - loads every stage

            return InlineRunner()
        return Supervisor(self.workers, self.readers)

    def load(self, definition: TokenizerDefinition) -> None:
        """Have the backend loaded."""
        self._encoding_json = definition.encoding_json
        self._probes = tuple(probe_strings(list(definition.control_ids)))
        self._load()

    def _load(self) -> None:
        settings = EncoderSettings(self.backend, self._match_control_tokens, self._probes)
        self.runner.load(settings, self._encoding_json)

    def expect_streams(self, resolved: Resolved) -> None:
        """Start the reader processes that the first files will need."""
        from prep.pipeline.plan import is_stream  # noqa: PLC0415 - loads the readers

        batch_bytes = resolved.config.processing.batch_bytes
        first = resolved.files[: self.readers]
        self._streams = sum(is_stream(file, resolved.read, batch_bytes) for file in first)
        self.runner.expect_streams(self._streams)

    def confirm(self, expected: Sequence[Sequence[int]]) -> Runner:
        """Wait for the backend and compare it with the reference on the probes.

        Raises:
            ConfigError: the backend that the configuration names cannot be used or differs.
        """
        ready = self.runner.ready()
        problem = ready.error
        if not problem:
            difference = first_difference(self._probes, expected, ready.probe_ids)
            problem = f"{self.backend} differs from the reference on {difference}" if difference else ""
        if problem and self.backend != REFERENCE and self._may_fall_back:
            self.runner.close()
            self.backend, self.reason = REFERENCE, problem
            self.runner = self._start()
            self._load()
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
