"""Where everything that went in has gone."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counts:
    """One kind of thing.

    Attributes:
        taken: from the work source.
        delivered: to the training loop.
        buffered: on its way, in an operator or behind the last one.
        lost: left out, by reason.
        made: what operators added, by operator.
    """

    taken: int = 0
    delivered: int = 0
    buffered: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)

    def lose(self, reason: str, count: int) -> None:
        """Count what was left out."""
        if count:
            self.lost[reason] = self.lost.get(reason, 0) + count

    def make(self, operator: str, count: int) -> None:
        """Count what was added."""
        if count:
            self.made[operator] = self.made.get(operator, 0) + count


@dataclass
class Ledger:
    """taken + made = delivered + buffered + lost, at any time.

    Attributes:
        documents: samples of the work source; one is delivered with the last row that holds some of it.
        tokens: of these samples, as their shards count them; padding is none.
    """

    documents: Counts = field(default_factory=Counts)
    tokens: Counts = field(default_factory=Counts)
