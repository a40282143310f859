"""Comparing a saved state with the source that is to go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prep.catalog.errors import RefusedError
from runtime.work.order import MixtureStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISSING = "nothing"


def read_stages(saved: Any) -> list[MixtureStage]:
    """The stages of a saved order.

    Raises:
        RefusedError: they are missing or damaged.
    """
    try:
        return [MixtureStage(int(first), dict(weights)) for first, weights in saved["stages"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(
            "order.stages: missing or damaged; this is no state of a static mixture"
        ) from error


def differences(saved: Any, current: Any, field: str = "") -> Iterator[str]:
    """What differs between two pieces of plain JSON, field by field."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for name in [*current, *(name for name in saved if name not in current)]:
            path = f"{field}.{name}" if field else str(name)
            yield from differences(saved.get(name, MISSING), current.get(name, MISSING), path)
    elif saved != current and not (isinstance(saved, list) and saved == _as_json(current)):
        yield f"{field}: saved {saved!r}, now {current!r}"


def refuse_differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Refuse a state that belongs to another order.

    Raises:
        RefusedError: it names every field that differs.
    """
    found = list(differences(saved, current))
    if found:
        raise RefusedError(
            f"the state belongs to another order: {'; '.join(found)}. Make the source as it was, or change "
            "the mixture on purpose with begin_stage()"
        )


def refuse_missing_lanes(states: Sequence[Mapping[str, Any]]) -> None:
    """Refuse states that are not those of all lanes of one run.

    Raises:
        RefusedError: it names the lanes that are missing or given twice.
    """
    if not states:
        raise RefusedError("states: expected those of all lanes, found none")
    replicas = states[0]["lanes"]
    lanes = sorted(state["lane"] for state in states)
    if lanes != list(range(replicas)) or any(state["lanes"] != replicas for state in states):
        raise RefusedError(f"states: expected lanes 0 to {replicas - 1}, each once, found {lanes}")


def _as_json(value: Any) -> Any:
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value
