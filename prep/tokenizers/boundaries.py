"""Which ids are put before and behind each document.

BOS and EOS are added by this project, never by a tokenizer's post-processor, so every backend gives the
same. There is no default EOS text: it comes from the tokenizer's own files, or from the configuration and
then has to agree with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prep.catalog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prep.tokenizers.definition import TokenizerDefinition


@dataclass(frozen=True)
class Boundaries:
    """The ids around a document; None where nothing is added."""

    bos_id: int | None = None
    eos_id: int | None = None

    @property
    def count(self) -> int:
        """How many ids are added to each document."""
        return (self.bos_id is not None) + (self.eos_id is not None)


def resolve_boundaries(
    definition: TokenizerDefinition,
    *,
    add_bos: bool | str = "auto",
    add_eos: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    eos_override: bool = False,
) -> Boundaries:
    """Find BOS and EOS.

    `add_bos` "auto" is true where tokenizer_config.json says so or the post-processor adds a token in front.
    An unset EOS is that of tokenizer_config.json, else the only control token.

    Raises:
        ConfigError: none can be told, or one that is set is no control token or contradicts
            tokenizer_config.json (which `eos_override` allows for EOS).
    """
    template = _leading_token(definition.content.get("post_processor"))
    if add_bos == "auto":
        add_bos = definition.settings.get("add_bos_token") is True or template is not None
    bos = _bos(definition, bos_token, template) if add_bos else None
    return Boundaries(bos, _eos(definition, eos_token, override=eos_override) if add_eos else None)


def _bos(definition: TokenizerDefinition, token: str | None, template: int | None) -> int:
    if token is None:
        token = definition.named_token("bos_token")
        if token is None:
            if template is not None:
                return template
            raise ConfigError(
                f"{definition.origin}: tokenizer.bos_token: BOS is to be added, and the tokenizer's files "
                f"name none. Set it; control tokens: {definition.shown_control_tokens()}"
            )
    return _control_id(definition, "bos_token", token)


def _eos(definition: TokenizerDefinition, token: str | None, *, override: bool) -> int:
    named = definition.named_token("eos_token")
    if token is None:
        return _default_eos(definition, named)
    if override:
        found = definition.id_of(token)
        if found is None:
            raise ConfigError(
                f"{definition.origin}: tokenizer.eos_token: {token!r} is no token of this tokenizer"
            )
        return found
    if named is not None and named != token:
        raise ConfigError(
            f"{definition.origin}: tokenizer.eos_token: {token!r} (id {definition.id_of(token)}) differs "
            f"from tokenizer_config.json, which says {named!r} (id {definition.id_of(named)}). "
            "Remove the field, or set tokenizer.eos_override: true if you mean it"
        )
    return _control_id(definition, "eos_token", token)


def _default_eos(definition: TokenizerDefinition, named: str | None) -> int:
    if named is not None:
        return _control_id(definition, "eos_token", named)
    if len(definition.control_ids) == 1:
        return next(iter(definition.control_ids.values()))
    raise ConfigError(
        f"{definition.origin}: tokenizer.eos_token: EOS is to be added, and it cannot be told which token "
        f"it is. Set it, or add_eos: false; control tokens: {definition.shown_control_tokens()}"
    )


def _control_id(definition: TokenizerDefinition, name: str, token: str) -> int:
    found = definition.control_ids.get(token)
    if found is None:
        ordinary = definition.id_of(token)
        is_what = "is not in the vocabulary" if ordinary is None else f"(id {ordinary}) is an ordinary token"
        also = ", or set tokenizer.eos_override: true if you mean it" if name == "eos_token" else ""
        raise ConfigError(
            f"{definition.origin}: tokenizer.{name}: {token!r} {is_what}, not a control token. "
            f"Control tokens: {definition.shown_control_tokens()}{also}"
        )
    return found


def _leading_token(processor: Mapping[str, Any] | None) -> int | None:
    """The id that a post-processor puts in front of a text, or None."""
    if not processor:
        return None
    kind = processor.get("type")
    if kind == "Sequence":
        found = [_leading_token(part) for part in processor.get("processors", [])]
        return next((number for number in found if number is not None), None)
    if kind in ("BertProcessing", "RobertaProcessing"):
        return int(processor["cls"][1])
    if kind == "TemplateProcessing" and processor["single"]:
        name = processor["single"][0].get("SpecialToken", {}).get("id")
        entry = processor.get("special_tokens", {}).get(name)
        return int(entry["ids"][0]) if entry else None
    return None
