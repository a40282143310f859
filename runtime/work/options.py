"""What a mixture does when data runs out: from arguments, one value or one a dataset, to `Ends`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from runtime.errors import nearest
from runtime.work.schedule import Ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.io import Dataset

ExhaustedPolicy: TypeAlias = Literal["stop", "repeat", "redistribute"]
POLICIES: tuple[str, ...] = get_args(ExhaustedPolicy)

Value = TypeVar("Value")
OneOrEach: TypeAlias = "Value | Mapping[str, Value]"


class Unset:
    """An argument that was not given, where None means something else."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET: Final = Unset()


def each(argument: str, value: OneOrEach[Value], names: Sequence[str], *, default: Value) -> list[Value]:
    """A value for each dataset, from one for all or a mapping; the default where the mapping has none.

    Raises:
        ValueError: the mapping names a dataset that there is not.
    """
    if not isinstance(value, Mapping):
        return [value for _ in names]
    known = dict.fromkeys(names)
    for name in value:
        if name not in known:
            raise ValueError(
                f"{argument}: no dataset {name!r}{nearest(name, known)}; datasets are {', '.join(names)}"
            )
    return [value.get(name, default) for name in names]


def resolve_ends(
    datasets: Sequence[Dataset],
    weights: Sequence[int],
    exhausted_policy: OneOrEach[str] | None,
    max_repeats: OneOrEach[int | None] | None,
    stop_after_passes: OneOrEach[int] | Unset | None,
) -> tuple[Ends, list[dict[str, Any]]]:
    """The ends, and by dataset the values of the three arguments as they hold for it.

    Raises:
        ValueError: an argument has a wrong value, or two contradict each other; it names them.
    """
    names = [dataset.name for dataset in datasets]
    is_explicit = exhausted_policy is not None or max_repeats is not None
    if isinstance(stop_after_passes, Unset):
        stop_after_passes = None if is_explicit else 1
    if stop_after_passes is not None and is_explicit:
        _refuse_conflict(names, exhausted_policy, max_repeats)
    default = "repeat" if stop_after_passes is not None else "stop"
    policies = each("exhausted_policy", exhausted_policy or default, names, default=default)
    repeats = each("max_repeats", max_repeats, names, default=None)
    passes = each("stop_after_passes", stop_after_passes or 0, names, default=0)
    for name, policy, repeat, count in zip(names, policies, repeats, passes, strict=True):
        if policy not in POLICIES:
            raise ValueError(f"exhausted_policy: {name!r}: expected {', '.join(POLICIES)}, found {policy!r}")
        _check_count("max_repeats", name, repeat if repeat is not None else 0)
        _check_count("stop_after_passes", name, count)
    if stop_after_passes is not None and not any(
        count for count, weight in zip(passes, weights, strict=True) if weight
    ):
        raise ValueError(f"stop_after_passes: expected 1 or more for a dataset, found {stop_after_passes!r}")
    _refuse_idle_repeats(names, policies, max_repeats)
    _refuse_empty(datasets, weights, policies)
    totals = [dataset.total for dataset in datasets]
    limits = [
        None
        if policy == "repeat" and repeat is None
        else total * (1 + (repeat or 0) if policy == "repeat" else 1)
        for total, policy, repeat in zip(totals, policies, repeats, strict=True)
    ]
    floors = tuple(total * count for total, count in zip(totals, passes, strict=True))
    ends = Ends(
        tuple(limits),
        tuple(policy == "redistribute" for policy in policies),
        floors if stop_after_passes is not None else None,
    )
    values = [
        {"exhausted_policy": policy, "max_repeats": repeat, "stop_after_passes": count}
        for policy, repeat, count in zip(policies, repeats, passes, strict=True)
    ]
    return ends, values


def _check_count(argument: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{argument}: {name!r}: expected an integer from 0 on, found {value!r}")


def _refuse_conflict(names: Sequence[str], policy: Any, max_repeats: Any) -> None:
    if max_repeats is not None:
        raise ValueError("stop_after_passes: not together with max_repeats, which ends the run elsewhere")
    for name, given in zip(names, each("exhausted_policy", policy, names, default="repeat"), strict=True):
        if given != "repeat":
            raise ValueError(
                f"stop_after_passes: every dataset has to repeat, but exhausted_policy: {name!r}: {given!r}"
            )


def _refuse_idle_repeats(names: Sequence[str], policies: Sequence[str], max_repeats: Any) -> None:
    if max_repeats is None:
        return
    repeating = {name for name, policy in zip(names, policies, strict=True) if policy == "repeat"}
    if isinstance(max_repeats, Mapping):
        idle = [name for name, limit in max_repeats.items() if limit is not None and name not in repeating]
    else:
        idle = [] if repeating else list(names)
    if idle:
        raise ValueError(
            f"max_repeats: {', '.join(map(repr, idle))}: not a repeating dataset; "
            "set its exhausted_policy to 'repeat'"
        )


def _refuse_empty(datasets: Sequence[Dataset], weights: Sequence[int], policies: Sequence[str]) -> None:
    for dataset, weight, policy in zip(datasets, weights, policies, strict=True):
        if weight and not dataset.total and policy != "redistribute":
            raise ValueError(
                f"dataset {dataset.name!r} has no samples but a weight above 0; "
                "give it the weight 0 or the exhausted_policy 'redistribute'"
            )
