"""The weights of a mixture, checked and made exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from runtime.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MAX_BITS = 512
"""Integer weights are exact up to this size; beyond, they are rounded to it."""


@dataclass(frozen=True)
class MixtureSpec:
    """Weights by component; only their proportions matter.

    Attributes:
        weights: finite, 0 or more, and not all 0. A component of weight 0 is never drawn.

    Raises:
        ValueError: a weight is not such a number, or there is none above 0.
    """

    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not _is_number(weight):
                raise ValueError(f"mixture: {name!r}: expected a finite number, found {weight!r}")
            if weight < 0:
                raise ValueError(f"mixture: {name!r}: expected a weight of 0 or more, found {weight!r}")
        if not any(self.weights.values()):
            raise ValueError("mixture: expected at least one weight above 0")

    def validate_for(self, components: Collection[str]) -> None:
        """Check that there is a weight for each component, and no other.

        Raises:
            ValueError: it names the weights that are missing and those of no component.
        """
        known = dict.fromkeys(components)
        problems = [f"no weight for {name!r}" for name in known if name not in self.weights]
        problems += [
            f"no component {name!r}{nearest(name, known)}" for name in self.weights if name not in known
        ]
        if problems:
            raise ValueError(f"mixture: {'; '.join(problems)}; components are {', '.join(known)}")

    def normalized_for(self, components: Collection[str]) -> dict[str, float]:
        """Weights that sum to 1, in the order of the components.

        Raises:
            ValueError: see `validate_for`.
        """
        self.validate_for(components)
        exact = self.exact_for(components)
        total = sum(exact)
        return {name: float(weight / total) for name, weight in zip(components, exact, strict=True)}

    @property
    def normalized(self) -> dict[str, float]:
        """Weights that sum to 1."""
        return self.normalized_for(list(self.weights))

    def exact_for(self, components: Collection[str]) -> list[Fraction]:
        """The weights as their decimal digits say: 0.1 is one tenth."""
        return [exact(self.weights[name]) for name in components]


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def plain(number: Any) -> float:
    """A number of any type as JSON has it."""
    return int(number) if isinstance(number, Integral) else float(number)


def exact(number: float) -> Fraction:
    """A number as its shortest decimal form says."""
    return Fraction(repr(plain(number)))


def integer_weights(weights: Sequence[Fraction]) -> list[int]:
    """Integers in the same proportions; rounded, but never to 0, where these would have over 512 bits."""
    scale = math.lcm(*(weight.denominator for weight in weights))
    scaled = [int(weight * scale) for weight in weights]
    divisor = math.gcd(*scaled) or 1
    scaled = [weight // divisor for weight in scaled]
    excess = max(sum(scaled).bit_length() - MAX_BITS, 0)
    return [max(weight >> excess, 1) if weight else 0 for weight in scaled]
