"""A pipeline as a YAML file: a mixture, operators in order, and options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainValidator, model_validator

from prep.catalog.settings import read_yaml, validated
from runtime.errors import known_names
from runtime.ops.batch import BatchOp
from runtime.ops.mixture import EnsureMixtureOp
from runtime.ops.pack import PackFlatOp
from runtime.ops.shuffle import ShuffleOp
from runtime.options import RuntimeOptions
from runtime.pipeline import Pipeline
from runtime.work import MixtureReadConfig
from runtime.work.config import MixtureConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

OPERATORS: Mapping[str, Callable[..., Any]] = {
    "shuffle": ShuffleOp,
    "ensure_mixture": EnsureMixtureOp,
    "pack_flat": PackFlatOp,
    "batch": BatchOp,
}
"""What a file can name, and what takes its arguments."""

PLAIN_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "None": (type(None),),
}


def _check_arguments(taker: Callable[..., Any], arguments: Mapping[str, Any], where: str = "") -> None:
    """Compare arguments with a signature, so that messages speak of the file and not of Python."""
    parameters = inspect.signature(taker).parameters
    for argument, value in arguments.items():
        if argument not in parameters:
            raise ValueError(f"{where}there is no {argument!r}{known_names(argument, parameters)}")
        kinds = [kind.strip() for kind in str(parameters[argument].annotation).split("|")]
        if all(kind in PLAIN_TYPES for kind in kinds) and not any(_is_a(value, kind) for kind in kinds):
            allowed = " or ".join("null" if kind == "None" else kind for kind in kinds)
            raise ValueError(f"{where}{argument}: expected {allowed}, found {value!r}")
    for argument, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and argument not in arguments:
            raise ValueError(f"{where}{argument}: this argument is required")


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, PLAIN_TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))


def _operator(value: Any) -> tuple[str, dict[str, Any]]:
    """An operator's name and arguments, from a name or a mapping with one entry."""
    entry = {value: None} if isinstance(value, str) else value
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ValueError("expected an operator as `name: {argument: value}`")
    (name, arguments), *_ = entry.items()
    if name not in OPERATORS:
        raise ValueError(f"there is no operator {name!r}{known_names(name, OPERATORS)}")
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, dict):
        raise ValueError(f"{name}: expected arguments as `argument: value`, found {arguments!r}")  # noqa: TRY004
    _check_arguments(OPERATORS[name], arguments, f"{name}: ")
    try:
        OPERATORS[name](**arguments)  # what it refuses is told now, with the place in the file
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
    return name, arguments


def _options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected options as `name: value`")  # noqa: TRY004 - pydantic reports ValueError
    _check_arguments(RuntimeOptions, value)
    options = dict(value)
    if isinstance(read := options.get("mixture_config"), dict):
        _check_arguments(MixtureReadConfig, read, "mixture_config: ")
        try:
            options["mixture_config"] = MixtureReadConfig(**read)
        except ValueError as error:
            raise ValueError(f"mixture_config: {error}") from error
    RuntimeOptions(**options).owned_lanes()
    return options


class PipelineConfig(MixtureConfig):
    """A mixture and what becomes of its samples."""

    operators: list[Annotated[tuple[str, dict[str, Any]], PlainValidator(_operator)]] = Field(min_length=1)
    """In order; the last is `batch`."""
    options: Annotated[dict[str, Any], PlainValidator(_options)] = Field(default_factory=dict)
    """Fields of `RuntimeOptions`."""

    @model_validator(mode="after")
    def _ends_with_batch(self) -> PipelineConfig:
        if self.operators[-1][0] != "batch":
            raise ValueError(f"operators: the last one: expected batch, found {self.operators[-1][0]}")
        return self

    def pipeline(self, origin: str = "configuration") -> Pipeline:
        """The pipeline; opens the catalogs.

        Args:
            origin: what messages call the configuration.

        Raises:
            ConfigError: two settings contradict each other.
            IntegrityError: a catalog is missing or damaged.
        """
        pipeline = Pipeline(self.source(origin))
        for name, arguments in self.operators:
            getattr(pipeline, name)(**arguments)
        return pipeline.options(**self.options)


def load_pipeline(path: Path | str, overrides: Iterable[str] = ()) -> PipelineConfig:
    """Read a pipeline's YAML file and apply overrides of the form `a.b=value`.

    Raises:
        ConfigError: the file cannot be read, or a field is unknown or has an unusable value; the message
            names the file, the field's path, the value and what is allowed.
    """
    tree = read_yaml(path, "datasets, operators, options", overrides)
    return validated(PipelineConfig, tree, str(path))
