"""A mixture as a YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from prep.catalog.errors import ConfigError
from prep.catalog.settings import Section, read_yaml, validated
from runtime.io import Dataset
from runtime.work.options import UNSET
from runtime.work.static import StaticMixtureWorkSource
from runtime.work.tokens import TokenEstimation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict()]


class DatasetEntry(Section):
    """A component of the mixture."""

    name: str = Field(min_length=1)
    path: str = Field(min_length=1)
    """The folder of a catalog, or an fsspec URL of one."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    exhausted_policy: Literal["stop", "repeat", "redistribute"] | None = None
    max_repeats: Count | None = Field(default=None, ge=0)
    stop_after_passes: Count | None = Field(default=None, ge=0)
    reshuffle_on_repeat: Flag = True


class EstimationConfig(Section):
    """How tokens a sample are known of datasets that are no token shards."""

    primer: float | dict[str, float] | Literal["measure"] = "measure"
    calibration_samples: Count = 2048
    calibration_shards_min: Count = 4
    calibration_shards_max: Count = 16
    fallback_tokens_per_byte: float = 0.25


class MixtureConfig(Section):
    """Datasets, their shares, and the order in which they are read."""

    datasets: list[DatasetEntry] = Field(min_length=1)
    unit: Literal["samples", "tokens"] | None = None
    """What weights count; required where there is more than one dataset."""
    chunk_size: Count = Field(default=16_384, ge=1)
    seed: Count = 0
    shuffle_shards: Flag = True
    shuffle_within_shard: Flag = False
    shuffle_block_size: Count | Literal["auto", "global"] | None = None
    stop_after_passes: Count | None = Field(default=None, ge=1)
    """Of every dataset; 1 where nothing is said about ends."""
    lane_assignment: Literal["permute", "modulo"] = "permute"
    token_estimation: EstimationConfig = EstimationConfig()

    @model_validator(mode="after")
    def _has_unit(self) -> MixtureConfig:
        if self.unit is None and len(self.datasets) > 1:
            raise ValueError("unit: this field is required with several datasets: samples or tokens")
        return self

    def source(self) -> StaticMixtureWorkSource:
        """The work source; opens the catalogs.

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
            raise ConfigError(str(error)) from error

    def _ends(self) -> dict[str, Any]:
        """The arguments about ends that are given."""
        ends: dict[str, Any] = {}
        for argument in ("exhausted_policy", "max_repeats", "stop_after_passes"):
            given = {
                entry.name: value
                for entry in self.datasets
                if (value := getattr(entry, argument)) is not None
            }
            if given:
                ends[argument] = given
        if self.stop_after_passes is not None:
            if "stop_after_passes" in ends:
                raise ValueError("stop_after_passes: given for all datasets and for one")
            ends["stop_after_passes"] = self.stop_after_passes
        return {"stop_after_passes": UNSET, **ends}


def load_mixture(path: Path | str, overrides: Iterable[str] = ()) -> MixtureConfig:
    """Read a mixture's YAML file and apply overrides of the form `a.b=value`.

    Raises:
        ConfigError: the file cannot be read, or a field is unknown or has an unusable value; the message
            names the file, the field's path, the value and what is allowed.
    """
    return validated(MixtureConfig, read_yaml(path, "datasets, unit", overrides), str(path))
