"""Which chunk of the global order belongs to which lane."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from runtime.permutation import Permutation, derive_key

LaneAssignment: TypeAlias = Literal["permute", "modulo"]
ASSIGNMENTS: tuple[str, ...] = ("permute", "modulo")


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

    def chunk_of(self, lane: int, turn: int) -> int:
        """The number of a lane's chunk, by how many it had before."""
        if not self._permutes:
            return turn * self.replicas + lane
        return turn * self.replicas + int(self._round(turn).inverse(np.array([lane]))[0])

    def lane_of(self, chunk: int) -> int:
        """The lane to which a chunk belongs."""
        turn, place = divmod(chunk, self.replicas)
        return int(self._round(turn).permute(np.array([place]))[0]) if self._permutes else place

    def _round(self, turn: int) -> Permutation:
        return Permutation(self.replicas, derive_key("lanes", self._seed, turn))
