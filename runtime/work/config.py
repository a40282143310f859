"""A mixture as a YAML file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator, Strict, model_validator

from prep.catalog.errors import ConfigError
from prep.catalog.settings import Section, read_yaml, validated
from runtime.io import Dataset
from runtime.work.lanes import LaneAssignment  # noqa: TC001 - read by pydantic
from runtime.work.options import UNSET, ExhaustedPolicy
from runtime.work.static import StaticMixtureWorkSource
from runtime.work.tokens import TokenEstimation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict()]
Number = Annotated[float, Strict()]


def _is_ratio(value: Any) -> bool:
    return type(value) in {int, float} and 0 < value < math.inf


def _block_size(value: Any) -> Any:
    if value in (None, "auto", "global") or (type(value) is int and value > 0):
        return value
    raise ValueError("expected auto, global, null or a whole number from 1 on")


def _primer(value: Any) -> Any:
    ratios = value.values() if isinstance(value, dict) else [value]
    if value == "measure" or all(_is_ratio(ratio) for ratio in ratios):
        return value
    raise ValueError("expected measure, tokens per byte, or a mapping of dataset to tokens per byte")


class DatasetEntry(Section):
    """A component of the mixture."""

    name: str = Field(min_length=1)
    path: str = Field(min_length=1)
    """The folder of a catalog, or an fsspec URL of one."""
    weight: Number = Field(default=1.0, ge=0, allow_inf_nan=False)
    exhausted_policy: ExhaustedPolicy | None = None
    """By default that of the mixture, as for `max_repeats`."""
    max_repeats: Count | None = Field(default=None, ge=0)
    stop_after_passes: Count | None = Field(default=None, ge=0)
    reshuffle_on_repeat: Flag = True


class EstimationConfig(Section):
    """How tokens a sample are known of datasets that are no token shards."""

    primer: Annotated[Any, PlainValidator(_primer)] = "measure"
    calibration_samples: Count = Field(default=2048, ge=1)
    calibration_shards_min: Count = Field(default=4, ge=1)
    calibration_shards_max: Count = Field(default=16, ge=1)
    fallback_tokens_per_byte: Number = Field(default=0.25, gt=0, allow_inf_nan=False)


class MixtureConfig(Section):
    """Datasets, their shares, and the order in which they are read."""

    datasets: list[DatasetEntry] = Field(min_length=1)
    unit: Literal["samples", "tokens"] | None = None
    """What weights count; required where there is more than one dataset."""
    chunk_size: Count = Field(default=16_384, ge=1)
    seed: Count = 0
    shuffle_shards: Flag = True
    shuffle_within_shard: Flag = False
    shuffle_block_size: Annotated[Any, PlainValidator(_block_size)] = None
    exhausted_policy: ExhaustedPolicy | None = None
    """Of every dataset that has none of its own."""
    max_repeats: Count | None = Field(default=None, ge=0)
    stop_after_passes: Count | None = Field(default=None, ge=1)
    """Of every dataset; 1 where nothing is said about ends."""
    lane_assignment: LaneAssignment = "permute"
    token_estimation: EstimationConfig = EstimationConfig()

    @model_validator(mode="after")
    def _has_unit(self) -> MixtureConfig:
        if self.unit is None and len(self.datasets) > 1:
            raise ValueError("unit: this field is required with several datasets: samples or tokens")
        return self

    def source(self, origin: str = "configuration") -> StaticMixtureWorkSource:
        """The work source; opens the catalogs.

        Args:
            origin: what messages call the configuration.

        Raises:
            ConfigError: two settings contradict each other.
            IntegrityError: a catalog is missing or damaged.
        """
        datasets = [Dataset.from_path(entry.name, entry.path) for entry in self.datasets]
        try:
            return StaticMixtureWorkSource(
                datasets,
                {entry.name: entry.weight for entry in self.datasets},
                chunk_size=self.chunk_size,
                seed=self.seed,
                shuffle_shards=self.shuffle_shards,
                shuffle_within_shard=self.shuffle_within_shard,
                shuffle_block_size=self.shuffle_block_size,
                reshuffle_on_repeat={entry.name: entry.reshuffle_on_repeat for entry in self.datasets},
                lane_assignment=self.lane_assignment,
                token_estimation=TokenEstimation(**self.token_estimation.model_dump())
                if self.unit == "tokens"
                else None,
                **self._ends(),
            )
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from error

    def _ends(self) -> dict[str, Any]:
        """The arguments about ends that are given."""
        ends: dict[str, Any] = {"stop_after_passes": UNSET}
        for argument in ("exhausted_policy", "max_repeats", "stop_after_passes"):
            common = getattr(self, argument)
            own = {
                entry.name: value
                for entry in self.datasets
                if (value := getattr(entry, argument)) is not None
            }
            if own and common is not None:
                own = {**{entry.name: common for entry in self.datasets}, **own}
            if own or common is not None:
                ends[argument] = own or common
        return ends


def load_source(path: Path | str, overrides: Iterable[str] = ()) -> StaticMixtureWorkSource:
    """The work source that a YAML file describes; errors as of `load_mixture` and `MixtureConfig.source`."""
    return load_mixture(path, overrides).source(str(path))


def load_mixture(path: Path | str, overrides: Iterable[str] = ()) -> MixtureConfig:
    """Read a mixture's YAML file and apply overrides of the form `a.b=value`.

    Raises:
        ConfigError: the file cannot be read, or a field is unknown or has an unusable value; the message
            names the file, the field's path, the value and what is allowed.
    """
    return validated(MixtureConfig, read_yaml(path, "datasets, unit", overrides), str(path))
