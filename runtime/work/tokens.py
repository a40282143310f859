"""Weights that mean tokens: how many tokens a sample of each dataset has on average."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prep.catalog.errors import TokenloomError
from runtime.errors import nearest
from runtime.permutation import Permutation, derive_key
from runtime.work.mixture import exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.io import Dataset
    from runtime.work.mixture import MixtureSpec

log = logging.getLogger(__name__)

DEFAULT_FALLBACK_TOKENS_PER_BYTE = 0.25
TARGET_ERROR = 0.02
"""Relative spread of the mean that decides how many shards are read: spread between shards / sqrt(shards)."""


@dataclass(frozen=True)
class TokenEstimation:
    """How a mixture by tokens learns what its datasets' samples cost. Giving one selects such a mixture.

    A catalog of token shards knows its tokens exactly: nothing here applies to it.

    Attributes:
        primer: "measure": read and tokenize a sample before the run; a mapping of dataset to tokens per byte:
            pins those and measures the rest; a number: tokens per byte of all, nothing is measured.
        measure: payload to its number of tokens, in place of the tokenizer.
        calibration_samples: samples that are measured of a dataset.
        calibration_shards_min: shards that are read where all are alike.
        calibration_shards_max: shards that are read where they differ, or where it is not known.
        fallback_tokens_per_byte: where a dataset cannot be measured.

    Raises:
        ValueError: a field has a value that cannot be.
    """

    primer: Literal["measure"] | Mapping[str, float] | float = "measure"
    measure: Callable[[Any], int] | None = None
    calibration_samples: int = 2048
    calibration_shards_min: int = 4
    calibration_shards_max: int = 16
    fallback_tokens_per_byte: float = DEFAULT_FALLBACK_TOKENS_PER_BYTE

    def __post_init__(self) -> None:
        _check_ratio("fallback_tokens_per_byte", self.fallback_tokens_per_byte)
        if isinstance(self.primer, Mapping):
            for name, value in self.primer.items():
                _check_ratio(f"primer: {name!r}", value)
        elif isinstance(self.primer, str):
            if self.primer != "measure":
                raise ValueError(
                    "token_estimation: primer: expected 'measure', tokens per byte, or a mapping of datasets "
                    f"to these, found {self.primer!r}"
                )
        else:
            _check_ratio("primer", self.primer)
        for name in ("calibration_samples", "calibration_shards_min", "calibration_shards_max"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"token_estimation: {name}: expected an integer of 1 or more, found {value!r}"
                )
        if self.calibration_shards_min > self.calibration_shards_max:
            raise ValueError(
                "token_estimation: calibration_shards_min: expected at most calibration_shards_max "
                f"({self.calibration_shards_max}), found {self.calibration_shards_min}"
            )
        if self.measure is not None and not callable(self.measure):
            raise ValueError(f"token_estimation: measure: expected a callable, found {self.measure!r}")

    def pinned(self, name: str) -> float | None:
        """Tokens per byte that are given for a dataset."""
        if isinstance(self.primer, Mapping):
            return self.primer.get(name)
        return None if isinstance(self.primer, str) else self.primer


def _check_ratio(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"token_estimation: {field}: expected a finite number above 0, found {value!r}")


@dataclass(frozen=True)
class CountingSpec:
    """Counts tokens as a job or pipeline will give them.

    Attributes:
        tokenizer: a tokenizer.json, the folder of one, or a hub id.
        field: of the payload that holds the text.
        added: tokens that are added to each text, such as BOS and EOS.
        backend: of `prep.tokenizers`; the reference needs nothing beyond the core.
    """

    tokenizer: str
    field: str = "text"
    added: int = 1
    backend: str = "tokenizers"

    def counter(self) -> Callable[[Sequence[str]], int]:
        """A function from texts to their tokens."""
        from prep.tokenizers.backends import make_encoder  # noqa: PLC0415 - only where texts are measured
        from prep.tokenizers.definition import load_definition  # noqa: PLC0415

        encoder = make_encoder(self.backend, load_definition(self.tokenizer).encoding_json)

        def count(texts: Sequence[str]) -> int:
            return len(encoder.encode(list(texts)).ids) + self.added * len(texts)

        return count


def known_means(
    datasets: Sequence[Dataset], mixture: MixtureSpec, estimation: TokenEstimation
) -> dict[str, Fraction]:
    """Tokens a sample of each dataset that needs no measuring.

    Raises:
        ValueError: a pin is of no dataset, or a dataset that is drawn cannot be mixed by tokens.
    """
    names = [dataset.name for dataset in datasets]
    if isinstance(estimation.primer, Mapping):
        for name in estimation.primer:
            if name not in names:
                raise ValueError(
                    f"token_estimation: primer: no dataset {name!r}{nearest(name, names)}; "
                    f"datasets are {', '.join(names)}"
                )
    drawn = [dataset for dataset in datasets if mixture.weights[dataset.name]]
    means = {dataset.name: known_mean(dataset, estimation) for dataset in drawn}
    return {name: mean for name, mean in means.items() if mean is not None}


def known_mean(dataset: Dataset, estimation: TokenEstimation) -> Fraction | None:
    """Tokens a sample where nothing has to be measured: exact totals, or pins.

    Raises:
        ValueError: a pin contradicts exact totals or has no bytes to apply to, or the samples hold no tokens.
    """
    tokens, total = dataset.num_tokens(), dataset.total
    if not total:
        return Fraction(1)  # others take over its share at once; any number does
    is_named = isinstance(estimation.primer, Mapping) and dataset.name in estimation.primer
    if tokens is not None:
        if is_named:
            raise ValueError(
                f"token_estimation: primer: {dataset.name!r} is a catalog of token shards, whose tokens are "
                "known exactly; leave its pin out"
            )
        if not tokens.sum():
            raise ValueError(f"dataset {dataset.name!r} holds no tokens; it cannot be mixed by tokens")
        return Fraction(int(tokens.sum()), total)
    pin = estimation.pinned(dataset.name)
    if pin is None:
        return None
    if dataset.raw_bytes() is None:
        raise ValueError(f"token_estimation: primer: the bytes of {dataset.name!r} are not known; measure it")
    return exact(pin) * mean_bytes(dataset)


def mean_bytes(dataset: Dataset) -> Fraction:
    """Bytes of text a sample."""
    raw = dataset.raw_bytes()
    if raw is None or not dataset.total or not raw.sum():
        raise ValueError(f"dataset {dataset.name!r}: the bytes of its samples are not known or 0")
    return Fraction(int(raw.sum()), dataset.total)


def shards_to_read(dataset: Dataset, estimation: TokenEstimation) -> int:
    """How many shards are measured, from how much their bytes a row differ."""
    counts, raw = dataset.counts(), dataset.raw_bytes()
    filled = counts > 0
    most = min(estimation.calibration_shards_max, int(filled.sum()))
    if raw is None or not most:
        return most
    means = raw[filled] / counts[filled]
    spread = float(means.std() / means.mean()) if means.mean() else 0.0
    return min(max(estimation.calibration_shards_min, math.ceil((spread / TARGET_ERROR) ** 2)), most)


def measured_mean(
    dataset: Dataset,
    estimation: TokenEstimation,
    seed: int,
    counting_spec: CountingSpec | None,
    replay: Callable[[Any], Any] | None = None,
) -> float:
    """Tokens a sample, measured on some of them; the fallback where that fails.

    Args:
        dataset: what is measured.
        estimation: how.
        seed: which samples.
        counting_spec: the tokenizer; None where `estimation.measure` counts.
        replay: applied to each payload first; None as its result leaves the sample out.
    """
    try:
        tokens, text_bytes, samples = _measure(dataset, estimation, seed, counting_spec, replay)
    except TokenloomError as error:
        log.warning("dataset %r cannot be measured: %s", dataset.name, error)
        tokens = text_bytes = samples = 0
    knows_bytes = dataset.raw_bytes() is not None and dataset.raw_bytes().sum() > 0  # type: ignore[union-attr]
    if samples and tokens:
        if text_bytes and knows_bytes:
            return tokens / text_bytes * float(mean_bytes(dataset))
        return tokens / samples
    if not knows_bytes:
        raise ValueError(
            f"dataset {dataset.name!r}: no text found to measure and its bytes are not known; give "
            "token_estimation.measure, or the field of the text"
        )
    log.warning(
        "dataset %r: no text found; taking %g tokens per byte",
        dataset.name,
        estimation.fallback_tokens_per_byte,
    )
    return estimation.fallback_tokens_per_byte * float(mean_bytes(dataset))


def chosen_samples(
    dataset: Dataset, estimation: TokenEstimation, seed: int
) -> list[tuple[int, NDArray[np.int64]]]:
    """Shard ids and rows that are measured: shards at random, rows in proportion to their sizes."""
    filled = np.flatnonzero(dataset.counts())
    key = derive_key("calibration", seed, dataset.name)
    places = Permutation(len(filled), key).permute(np.arange(shards_to_read(dataset, estimation)))
    shards = np.sort(filled[places])
    counts = dataset.counts()[shards]
    shares = np.ceil(counts / counts.sum() * estimation.calibration_samples).astype(np.int64)
    chosen = []
    for shard, count, share in zip(shards.tolist(), counts.tolist(), shares.tolist(), strict=True):
        rows = Permutation(count, derive_key(key, shard)).permute(np.arange(min(share, count)))
        chosen.append((int(dataset.ids()[shard]), np.sort(rows)))
    return chosen


def _measure(
    dataset: Dataset,
    estimation: TokenEstimation,
    seed: int,
    counting_spec: CountingSpec | None,
    replay: Callable[[Any], Any] | None,
) -> tuple[int, int, int]:
    """Tokens, bytes of text (0 where the user's function counts) and samples measured."""
    if estimation.measure is None and counting_spec is None:
        raise ValueError(
            f"dataset {dataset.name!r}: measuring its tokens needs a tokenizer (counting_spec) or "
            "token_estimation.measure; or pin tokens per byte with token_estimation.primer"
        )
    count = counting_spec.counter() if counting_spec and estimation.measure is None else None
    tokens = text_bytes = samples = 0
    for shard, rows in chosen_samples(dataset, estimation, seed):
        with dataset.open_shard(shard) as reader:
            payloads = reader.read(rows)
        if replay is not None:
            payloads = [payload for payload in map(replay, payloads) if payload is not None]
        if estimation.measure is not None:
            tokens += sum(_measured(dataset.name, estimation.measure, payload) for payload in payloads)
            samples += len(payloads)
            continue
        assert count is not None
        assert counting_spec is not None
        texts = [text for text in map(_text_of(counting_spec.field), payloads) if text is not None]
        tokens += count(texts)
        text_bytes += sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        samples += len(texts)
    return tokens, text_bytes, samples


def _measured(name: str, measure: Callable[[Any], int], payload: Any) -> int:
    found = measure(payload)
    if isinstance(found, bool) or not isinstance(found, Integral) or found < 0:
        raise ValueError(
            f"token_estimation: measure: dataset {name!r}: expected a number of tokens, found {found!r}"
        )
    return int(found)


def _text_of(field: str) -> Callable[[Any], str | None]:
    def text(payload: Any) -> str | None:
        value = payload.get(field) if isinstance(payload, Mapping) else payload
        return value if isinstance(value, str) else None

    return text
