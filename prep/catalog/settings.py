"""YAML files as trees of pydantic models, with errors that name file, field, value and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from prep.catalog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Section(BaseModel):
    """A part of a configuration: frozen, and strict about unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Section)


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may not be given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is no plain value", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path | str, sections: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The mapping in a file, with overrides of the form `a.b=value` (the value is YAML).

    Args:
        path: of the file.
        sections: what it should hold, for the message.
        overrides: of its fields.

    Raises:
        ConfigError: the file cannot be read or holds something else, or an override makes no sense.
    """
    try:
        tree = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a mapping of sections ({sections})")
    for override in overrides:
        _apply(tree, override)
    return tree


def validated(model: type[Model], tree: Mapping[str, Any], origin: str) -> Model:
    """A model from plain data.

    Raises:
        ConfigError: a field is unknown or has an unusable value; all of them are told.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        lines = [_describe(model, entry) for entry in error.errors(include_url=False)]
        raise ConfigError("\n".join(f"{origin}: {line}" for line in lines)) from error


def _apply(tree: dict[str, Any], override: str) -> None:
    path, sep, text = override.partition("=")
    keys = path.strip().split(".")
    if not sep or not all(keys):
        raise ConfigError(f"--set {override}: expected section.field=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML: {error}") from error
    node: Any = tree
    for key in keys[:-1]:
        place = _place(node, key, override)
        below = node.get(place) if isinstance(node, dict) else node[place]
        if below is None:
            below = node[place] = {}
        if not isinstance(below, dict | list):
            raise ConfigError(f"--set {override}: {key} is a value, not a section")
        node = below
    node[_place(node, keys[-1], override)] = value


def _place(node: dict[str, Any] | list[Any], key: str, override: str) -> str | int:
    """A key of a mapping as it is, that of a list as the number of an entry."""
    if isinstance(node, dict):
        return key
    if not key.isdecimal() or int(key) >= len(node):
        raise ConfigError(f"--set {override}: {key}: expected the number of an entry, 0 to {len(node) - 1}")
    return int(key)


def _describe(model: type[Section], entry: Mapping[str, Any]) -> str:
    """One validation error: field path, what is allowed, the value, the nearest known name."""
    location = [str(step) for step in entry["loc"]]
    field = ".".join(location) or "(top level)"
    if entry["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        near = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{field}: unknown field: {hint}Known here: {', '.join(sorted(known))}"
    if entry["type"] == "missing":
        return f"{field}: this field is required"
    message = entry["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    limit = re.match(r"(?:String|List) (should .*?)(?: after validation, not \d+)?$", message)
    if entry["type"] == "model_type":
        message = f"expected a section with fields of its own: {', '.join(_fields_at(model, location))}"
    elif limit:
        message = limit[1]
    elif entry["type"] != "value_error":
        message = f"expected {message.replace('a valid dictionary', 'a mapping')}"
    if isinstance(entry["input"], dict):
        return f"{field}: {message}" + ("" if entry["type"] == "value_error" else ", found a mapping")
    return f"{field}: {message}, found {entry['input']!r}"


def _fields_at(model: type[Section], location: list[str]) -> list[str]:
    section: Any = model
    for step in location:
        if step.isdigit():
            continue  # an entry of a list
        field = section.model_fields.get(step)
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
        if not below:
            return []
        section = below[0]
    return list(section.model_fields)
