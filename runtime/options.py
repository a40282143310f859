"""How a pipeline runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runtime.work import MixtureReadConfig


@dataclass(frozen=True)
class RuntimeOptions:
    """What a user may choose about the run; nothing here but lanes and epochs changes the batches.

    Attributes:
        runner: where operators run: "inline": in the loop itself; "threads": ahead of it.
        prefetch_batches: batches of a lane that "threads" has ready.
        canonical_replicas: independent lanes; None: one for each group of ranks.
        dp_degree: groups of ranks that share out the lanes.
        dp_group_id: which group this is.
        mapping_strategy: a group owns lanes that are neighbours, or every so-many-th.
        flush_every_k_chunks: chunks an epoch of a lane.
        mixture_config: how chunks are read; None: as the work source says.
    """

    runner: Literal["inline", "threads"] = "inline"
    prefetch_batches: int = 8
    canonical_replicas: int | None = None
    dp_degree: int = 1
    dp_group_id: int = 0
    mapping_strategy: Literal["contiguous", "interleaved"] = "contiguous"
    flush_every_k_chunks: int = 8
    mixture_config: MixtureReadConfig | None = None

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return self.canonical_replicas or self.dp_degree

    def owned_lanes(self) -> list[int]:
        """The lanes of this group, in the order of delivery.

        Raises:
            ValueError: an option has a value that cannot be, the lanes cannot be shared out equally, or there
                is no such group.
        """
        if self.runner not in ("inline", "threads"):
            raise ValueError(f"runner: expected inline or threads, found {self.runner!r}")
        for name in ("prefetch_batches", "flush_every_k_chunks", "dp_degree"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected an integer of 1 or more, found {value!r}")
        lanes, degree, group = self.lanes, self.dp_degree, self.dp_group_id
        if lanes % degree:
            allowed = [number for number in range(1, lanes + 1) if lanes % number == 0]
            raise ValueError(
                f"dp_degree: expected a divisor of canonical_replicas ({lanes}): {allowed}; found {degree}"
            )
        if not 0 <= group < degree:
            raise ValueError(f"dp_group_id: expected 0 to {degree - 1}, found {group}")
        share = lanes // degree
        if self.mapping_strategy == "contiguous":
            return list(range(group * share, (group + 1) * share))
        return list(range(group, lanes, degree))
