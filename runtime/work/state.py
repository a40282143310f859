"""Comparing a saved state with the source that is to go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prep.catalog.errors import RefusedError
from runtime.work.mixture import MixtureSpec
from runtime.work.order import MixtureStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISSING = object()


def differences(saved: Any, current: Any, field: str = "") -> Iterator[str]:
    """What differs between two pieces of plain JSON, field by field."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for name in [*current, *(name for name in saved if name not in current)]:
            path = f"{field}.{name}" if field else str(name)
            yield from differences(saved.get(name, MISSING), current.get(name, MISSING), path)
    elif isinstance(saved, list) and isinstance(current, list) and len(saved) == len(current):
        for number, (before, now) in enumerate(zip(saved, current, strict=True)):
            yield from differences(before, now, f"{field}.{number}")
    elif saved != current or isinstance(saved, bool) is not isinstance(current, bool):
        yield f"{field}: saved {_shown(saved)}, now {_shown(current)}"


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


def read_state(state: Any, own: Mapping[str, Any]) -> tuple[int, Mapping[str, Any], list[MixtureStage]]:
    """What a state says.

    Args:
        state: of a lane.
        own: what the fields that say whose state it is have to be.

    Returns:
        How many chunks the lane has had, the description of its order, and the stages in it.

    Raises:
        RefusedError: it is no such state, is damaged, or is another's.
    """
    if not isinstance(state, Mapping):
        raise RefusedError(f"state: expected what state_dict() gave, found {type(state).__name__}")
    refuse_differences({name: state.get(name, MISSING) for name in own}, own)
    turn, order = state.get("turn"), state.get("order")
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 0:
        raise RefusedError(f"state: turn: expected an integer from 0 on, found {_shown(turn)}")
    if not isinstance(order, Mapping):
        raise RefusedError(f"state: order: expected that of a static mixture, found {_shown(order)}")
    datasets = order.get("datasets")
    if not isinstance(datasets, Mapping) or not all(isinstance(each, Mapping) for each in datasets.values()):
        raise RefusedError(f"state: order: datasets: damaged: {_shown(datasets)}")
    return turn, order, _stages(order.get("stages"), datasets)


def _stages(saved: Any, datasets: Mapping[str, Any]) -> list[MixtureStage]:
    try:
        stages = [
            MixtureStage(int(each["first_chunk"]), MixtureSpec(dict(each["weights"])).weights)
            for each in saved
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"state: order: stages: damaged: {error}") from error
    firsts = [stage.first_chunk for stage in stages]
    if firsts[:1] != [0] or firsts != sorted(firsts):
        raise RefusedError(f"state: order: stages: expected to begin at chunk 0 and go on, found {firsts}")
    if any(name not in datasets for stage in stages for name in stage.weights):
        raise RefusedError("state: order: stages: weights of datasets that the state does not have")
    return stages


def refuse_missing_lanes(states: Sequence[Any]) -> int:
    """Refuse states that are not those of all lanes of one run.

    Returns:
        How many lanes there are.

    Raises:
        RefusedError: it names the lanes that are missing or given twice.
    """
    found = [(state.get("lane"), state.get("lanes")) for state in states if isinstance(state, Mapping)]
    replicas = found[0][1] if found else None
    wanted = range(replicas) if isinstance(replicas, int) else ()
    if not wanted or len(found) != len(states):
        raise RefusedError("states: expected what state_dict() gave of every lane")
    given = {lane for lane, lanes in found if lanes == replicas}
    missing = [lane for lane in wanted if lane not in given]
    if missing or len(found) != replicas:
        raise RefusedError(
            f"states: expected lanes 0 to {len(wanted) - 1}, each once; found {len(found)}, missing {missing}"
        )
    return len(wanted)


def _shown(value: Any) -> str:
    return "nothing" if value is MISSING else repr(value)
