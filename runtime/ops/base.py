"""What an operator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from runtime.permutation import derive_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime.ops.accumulators import Accumulator
    from runtime.types import SampleRecord


@dataclass(frozen=True)
class OpTraits:
    """What the planner has to know of an operator.

    Attributes:
        preserves_cursor_order: records leave in the order in which they came. There is no default, as a wrong
            True loses data on resume.
        requires_serial_state: it keeps state between calls, so it runs alone.
        batch_shape_sensitive: its output depends on how records were grouped.
        indexable: its output can be asked for by place.
        parallelism: workers, where nothing else is said.
        calibration_replayable: it may be applied to samples that are measured before the run.
    """

    preserves_cursor_order: bool
    requires_serial_state: bool = False
    batch_shape_sensitive: bool = False
    indexable: bool = True
    parallelism: int = 1
    calibration_replayable: bool = False


@dataclass(frozen=True)
class OpContext:
    """What a running operator may use.

    Attributes:
        services: by name, such as "tokens", the store of token shards, and "seed".
        stage_info: what the planner says of its place.
    """

    services: Mapping[str, Any] = field(default_factory=dict)
    stage_info: Mapping[str, Any] | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """A service."""
        return self.services.get(key, default)

    def rng(self, record: SampleRecord) -> np.random.Generator:
        """Random numbers for one record, the same in every run, on any number of workers, after any restart.

        They are keyed by seed, operator, chunk, place in it, sample and lineage, so another pass over the
        data draws others.
        """
        cursor = record.meta.cursor
        operator = (self.stage_info or {}).get("operator", "")
        parts = (record.meta.lane_id, *cursor.base_offset(), *cursor.sample_id, *cursor.lineage)
        key = derive_key(self.get("seed", 0), operator, *parts)
        return np.random.Generator(np.random.Philox(key=key))


class BaseOp(ABC):
    """A step that records take.

    What one call of `process_many` gets is decided by the accumulator; the call itself keeps nothing, so
    calls may run anywhere and in any number at a time.

    Attributes:
        name: in messages and plans.
        takes_blocks: the operator and its accumulator work on `Block`s, as built-in ones do; others get lists
            of records, or of batches behind `batch`.
        changes_content: it may leave records out, and give others fewer tokens or more.
    """

    name: str = "operator"
    takes_blocks: ClassVar[bool] = False
    changes_content: ClassVar[bool] = False

    def setup(self, ctx: OpContext) -> None:  # noqa: B027 - few need it
        """Once, before any data."""

    def teardown(self) -> None:  # noqa: B027
        """Once, after all data, also after an error."""

    @abstractmethod
    def traits(self) -> OpTraits:
        """What the planner has to know."""

    @abstractmethod
    def accumulator(self, *, deterministic: bool, ctx: OpContext) -> Accumulator:
        """What decides how records are grouped; `deterministic` forbids it to look at the clock."""

    @abstractmethod
    def process_many(self, elems: Sequence[Any]) -> Any:
        """The work on one group: records in, records out."""

    def process_one(self, elem: Any) -> Any:
        """The work on a single record."""
        return self.process_many([elem])

    def validation_samples(self) -> Sequence[SampleRecord]:
        """Records to try it on before a run; none: ones of a general kind are made."""
        return ()
