"""Which chunk of the global order belongs to which lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from runtime.permutation import derive_key, inverse_each, permute_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

LaneAssignment: TypeAlias = Literal["permute", "modulo"]
ASSIGNMENTS: tuple[str, ...] = get_args(LaneAssignment)
DEALT_ROUNDS = 64
DEALT_LANES = 32
"""The places of so many lanes in so many rounds are computed together: those of one cost hardly less."""


class Lanes:
    """Deals chunks to lanes: of every `replicas` chunks in a row each lane gets one.

    Args:
        replicas: how many lanes there are.
        assignment: "permute" deals each round in an order of its own, so that no rhythm of the chunks meets
            always the same lane; "modulo" deals chunk g to lane g % replicas.
        seed: of the permutations.
    """

    def __init__(self, replicas: int, assignment: str, seed: int) -> None:
        self.replicas = replicas
        self._permutes = assignment == "permute" and replicas > 1
        self._seed = seed
        self._dealt: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def chunk_of(self, lane: int, turn: int) -> int:
        """The number of a lane's chunk, by how many it had before."""
        return turn * self.replicas + (self._place(lane, turn) if self._permutes else lane)

    def lane_of(self, chunk: int) -> int:
        """The lane to which a chunk belongs."""
        turn, place = divmod(chunk, self.replicas)
        if not self._permutes:
            return place
        return int(permute_each(np.array([place]), np.uint64(self.replicas), self._keys(turn, 1))[0])

    def _place(self, lane: int, turn: int) -> int:
        """Which chunk of a round a lane gets."""
        first, group = turn - turn % DEALT_ROUNDS, lane // DEALT_LANES
        dealt = self._dealt.get(group)
        if dealt is None or dealt[0] != first:
            lanes = np.arange(group * DEALT_LANES, min((group + 1) * DEALT_LANES, self.replicas))
            keys = np.repeat(self._keys(first, DEALT_ROUNDS), len(lanes))
            places = inverse_each(np.tile(lanes, DEALT_ROUNDS), np.uint64(self.replicas), keys)
            dealt = self._dealt[group] = first, places.reshape(DEALT_ROUNDS, len(lanes))
        return int(dealt[1][turn - first, lane % DEALT_LANES])

    def __getstate__(self) -> dict[str, Any]:
        """Without the places that were computed."""
        return {**self.__dict__, "_dealt": {}}

    def _keys(self, first: int, rounds: int) -> NDArray[np.uint64]:
        turns = range(first, first + rounds)
        return np.array([derive_key("lanes", self._seed, turn) for turn in turns], np.uint64)
