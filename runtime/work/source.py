"""What every source of work gives the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from runtime.work.chunk import MixtureReadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.io import Dataset
    from runtime.types import SampleId
    from runtime.work.chunk import WorkChunk


class WorkSource(ABC):
    """Decides the order of samples and hands out chunks of pointers; reads nothing but catalogs.

    Attributes:
        read_config: how chunks are read where nothing else is said; `sample_id_at` counts in this order.
    """

    read_config: MixtureReadConfig = MixtureReadConfig()

    @abstractmethod
    def next_chunk(self) -> WorkChunk | None:
        """The next chunk of this source's lane; None at the end, and ever after."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on from here, as plain JSON."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; all or nothing.

        Raises:
            RefusedError: the state belongs to another order; the message names what differs.
        """

    @abstractmethod
    def component_ids(self) -> Mapping[str, int]:
        """The id of each component that may ever come, fixed for the source's lifetime."""

    @property
    @abstractmethod
    def datasets_by_id(self) -> Mapping[int, Dataset]:
        """The datasets to which the ids of samples point."""

    @property
    def requires_token_priming(self) -> bool:
        """Whether `prime` must run before the first chunk."""
        return False

    def prime(  # noqa: B027 - most sources have nothing to measure
        self,
        *,
        io_options: Any = None,
        counting_spec: Any = None,
        pre_tokenize_replay: Any = None,
        mp_context: Any = None,
    ) -> None:
        """Measure what the order depends on, before the run; nothing to do here."""

    def clone_for_lane(self, lane_id: int, canonical_replicas: int) -> WorkSource:
        """This source as one of several lanes sees it: here a copy, for sources that know no lanes."""
        del lane_id, canonical_replicas
        return deepcopy(self)

    def supports_indexing(self) -> bool:
        """Whether `sample_id_at` works."""
        return False

    def sample_id_at(self, index: int) -> SampleId:
        """The sample at a place of the global order, before lanes.

        Raises:
            NotImplementedError: this source cannot tell.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support indexing")

    def chunk_size_hint(self) -> int | None:
        """The size of every chunk but the last, if it is constant."""
        return None
