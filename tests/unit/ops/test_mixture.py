"""Keeping prefixes near the mixture: exact order, drains, components without a share, warnings."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runtime.blocks import Block, pointers
from runtime.ops.base import OpContext
from runtime.ops.mixture import EnsureMixtureOp, MixtureAccumulator

COMPONENTS = {"a": 0, "b": 1, "c": 2}
SHARES = {"a": 0.25, "b": 0.5, "c": 0.125}


def records(components: list[int], tokens: list[int], first: int = 0) -> Block:
    block = pointers(0, 0, np.array(components, np.int32), np.zeros((len(components), 3), np.int64), first)
    lengths, refs = np.array(tokens, np.int64), np.zeros(len(tokens), np.int64)
    return replace(block, pieces=replace(block.pieces, length=lengths, ref=refs))


def accumulator(**arguments: Any) -> MixtureAccumulator:
    return MixtureAccumulator(EnsureMixtureOp(**arguments), OpContext({"components": COMPONENTS}))


def places(blocks: list[Block]) -> list[int]:
    return [place for block in blocks for place in block.pieces.offset.tolist()]


def plain(components: list[int], tokens: list[int], most: int) -> list[int]:
    """The same, record by record."""
    shares = {COMPONENTS[name]: share for name, share in SHARES.items()}
    reached = dict.fromkeys(shares, 0.0)
    waiting: list[tuple[float, int]] = []
    found = []
    for place, (component, size) in enumerate(zip(components, tokens, strict=True)):
        waiting.append((reached[component], place))
        reached[component] += size / shares[component]
        waiting.sort()
        while waiting and waiting[0][0] <= min(reached.values()):
            found.append(waiting.pop(0)[1])
        if len(waiting) > most:
            while len(waiting) > int(most * 0.8):
                found.append(waiting.pop(0)[1])
    return found + [place for _, place in waiting]


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_of_the_plain_rule_in_any_pieces(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    size, most = rng.randint(1, 200), rng.choice([1, 3, 20, 1000])
    components = [rng.randrange(3) for _ in range(size)]
    tokens = [rng.choice([0, 0, 1, 2, 5, 30]) for _ in range(size)]
    mixture = accumulator(max_buffer_size=most, mixture=SHARES)
    found, first = [], 0
    while first < size:
        stop = min(size, first + rng.choice([1, 3, 10, 100]))
        found += places(mixture.push_many(records(components[first:stop], tokens[first:stop], first)))
        first = stop
    assert found + places(mixture.flush()) == plain(components, tokens, most)


def test_prefixes_keep_to_token_shares() -> None:
    """Q40: documents of 400 and 4,000 tokens by turns, equal shares: tokens are balanced in every window."""
    mixture = accumulator(max_buffer_size=None, mixture={"a": 1.0, "b": 1.0})
    components, tokens = [0, 1] * 2000, [400, 4000] * 2000
    order = places(mixture.push_many(records(components, tokens)))
    spent = np.zeros(2)
    for place in order:
        spent[components[place]] += tokens[place]
        assert abs(spent[0] - spent[1]) <= 4400


def test_records_without_a_share_trickle_out_and_none_is_lost() -> None:
    mixture = accumulator(max_buffer_size=50, obsolete_drain_rate=0.5, mixture={"a": 1.0})
    components = [0, 2] * 100
    order = places(mixture.push_many(records(components, [1] * 200)))
    rest = places(mixture.flush())
    assert sorted(order + rest) == list(range(200))
    assert 30 < sum(components[place] == 2 for place in order) < 100


def test_a_component_that_sends_nothing_holds_no_more_than_the_buffer() -> None:
    mixture = accumulator(max_buffer_size=100, mixture={"a": 0.5, "b": 0.5})
    given = sum(len(block) for block in mixture.push_many(records([0] * 1000, [1] * 1000)))
    assert 900 <= given < 1000


def test_a_drift_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    mixture = accumulator(max_buffer_size=10, warn_tolerance=0.1, mixture={"a": 0.5, "b": 0.5})
    with caplog.at_level(logging.WARNING, logger="runtime.ops.mixture"):
        for _ in range(3):
            mixture.push_many(records([0] * 100, [1] * 100))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "component 0 has a share of 1.0000, wanted are 0.5000" in told[0]
    assert "component 1 has a share of 0.0000, wanted are 0.5000" in told[1]


@pytest.mark.parametrize(("weight_by", "costs"), [("samples", [1.0, 1.0]), ("tokens", [3.0, 5.0])])
def test_what_a_share_counts(weight_by: str, costs: list[float]) -> None:
    assert EnsureMixtureOp(weight_by=weight_by).costs(records([0, 1], [3, 5])) == costs


def test_a_function_says_what_a_record_counts() -> None:
    op = EnsureMixtureOp(weight_by=lambda record: record.meta.chunk_offset + 0.5)
    assert op.costs(records([0, 1], [3, 5])) == [0.5, 1.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_buffer_size": 0}, "max_buffer_size: expected 1 or more, found 0"),
        ({"drain_target_ratio": 2}, "drain_target_ratio: expected 0 to 1, found 2"),
        ({"mixture": {"d": 1}}, "no component 'd'; components are a, b, c"),
        ({"mixture": {"a": 0}}, "expected a share above 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        accumulator(**arguments)


def test_packed_rows_are_refused() -> None:
    block = replace(records([0, 1], [3, 5]), rows=np.array([0, 2]))
    with pytest.raises(TypeError, match="put it before packing"):
        accumulator(mixture=SHARES).push_many(block)
