"""Which backend a job uses, and that it agrees with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prep.catalog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from prep.tokenizers.protocol import Encoder

REFERENCE = "tokenizers"
FAST = "fastokens"


def version_of(backend: str) -> str:
    """The version of the library behind a backend; its distribution has the backend's name."""
    from importlib.metadata import version  # noqa: PLC0415 - not in every process

    return version(backend)


def make_encoder(backend: str, encoding_json: str, *, match_control_tokens: bool = False) -> Encoder:
    """A backend by its name.

    Raises:
        ConfigError: it is not installed, does not support the tokenizer, or there is no such backend.
    """
    from prep.tokenizers.fastokens import FastokensEncoder  # noqa: PLC0415 - only names are needed early
    from prep.tokenizers.reference import ReferenceEncoder  # noqa: PLC0415

    kinds: dict[str, Callable[..., Encoder]] = {REFERENCE: ReferenceEncoder, FAST: FastokensEncoder}
    if backend not in kinds:
        raise ConfigError(f"tokenizer.backend: expected one of {', '.join(kinds)}, found {backend!r}")
    return kinds[backend](encoding_json, match_control_tokens=match_control_tokens)
