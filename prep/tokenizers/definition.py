"""What a tokenizer is: its canonical JSON, its vocabulary, its control tokens, its BOS and EOS.

Control tokens are the added tokens with `special: true`. Other added tokens are part of the vocabulary
and stay active.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from prep.catalog.errors import ConfigError
from prep.catalog.fingerprint import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
FILE = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
UINT16_LIMIT = 65_535
SHOWN_TOKENS = 30


@dataclass(frozen=True)
class TokenizerDefinition:
    """A tokenizer as data.

    Attributes:
        content: the parsed tokenizer.json without padding and truncation.
        settings: what the job needs of tokenizer_config.json; empty where there is none.
        origin: where it came from, for messages.
    """

    content: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    origin: str = FILE

    @classmethod
    def from_bytes(
        cls, data: bytes, settings: bytes | None = None, origin: str = FILE
    ) -> TokenizerDefinition:
        """Parse a tokenizer.json, and the tokenizer_config.json beside it.

        Raises:
            ConfigError: it is no tokenizer.json.
        """
        try:
            content = orjson.loads(data)
        except ValueError as error:
            raise ConfigError(f"{origin}: tokenizer.path: not a tokenizer.json: {error}") from error
        try:
            parsed = {} if settings is None else orjson.loads(settings)
        except ValueError as error:
            raise ConfigError(f"{SETTINGS} beside {origin}: tokenizer.path: not JSON: {error}") from error
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise ConfigError(f"{origin}: tokenizer.path: not a tokenizer.json: it has no field 'model'")
        plain = {name: value for name, value in content.items() if name not in ("padding", "truncation")}
        return cls(plain, parsed if isinstance(parsed, dict) else {}, origin)

    @cached_property
    def canonical(self) -> bytes:
        """The canonical JSON: what is fingerprinted and kept beside a catalog."""
        return canonical_json(self.content)

    @cached_property
    def encoding_json(self) -> str:
        """The JSON that backends load: the canonical one without a post-processor."""
        plain = {**self.content, "post_processor": None}
        return (self.canonical if plain == self.content else canonical_json(plain)).decode()

    @cached_property
    def added_tokens(self) -> list[dict[str, Any]]:
        return list(self.content.get("added_tokens") or [])

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """Control tokens by text."""
        return {token["content"]: token["id"] for token in self.added_tokens if token.get("special")}

    @cached_property
    def largest_id(self) -> int:
        """The largest id over the vocabulary and the added tokens."""
        vocabulary = self.content["model"].get("vocab") or {}
        ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        return max(max(ids, default=0), max((token["id"] for token in self.added_tokens), default=0))

    def id_of(self, text: str) -> int | None:
        """The id of a token, control or not, or None."""
        for token in self.added_tokens:
            if token["content"] == text:
                return int(token["id"])
        vocabulary = self.content["model"].get("vocab") or {}
        if not isinstance(vocabulary, dict):  # Unigram: pairs of piece and score
            return next((number for number, piece in enumerate(vocabulary) if piece[0] == text), None)
        found = vocabulary.get(text)
        return None if found is None else int(found)

    def named_token(self, name: str) -> str | None:
        """A token that tokenizer_config.json names, such as "eos_token"."""
        value = self.settings.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        return value if isinstance(value, str) else None

    def shown_control_tokens(self) -> str:
        shown = [f"{text!r} ({number})" for text, number in list(self.control_ids.items())[:SHOWN_TOKENS]]
        more = len(self.control_ids) - len(shown)
        return (", ".join(shown) or "none") + (f" and {more} more" if more > 0 else "")


def load_definition(path: str) -> TokenizerDefinition:
    """Find a tokenizer by file, folder or hub id.

    Raises:
        ConfigError: nothing is there, or it is no tokenizer.json.
    """
    local = Path(path)
    if local.is_dir():
        return _from_files(local / FILE, local / SETTINGS)
    if local.is_file():
        if local.suffix in (".model", ".tiktoken", ".bpe", ".txt"):
            raise ConfigError(
                f"{path}: tokenizer.path: a bare vocabulary does not say how text is split before it is "
                "looked up; give a tokenizer.json (Hugging Face `tokenizers` format) made from it"
            )
        return _from_files(local, local.parent / SETTINGS if local.name == FILE else None)
    if HUB_ID.fullmatch(path) and not path.endswith(".json"):
        return _from_hub(path)
    raise ConfigError(f"{path}: tokenizer.path: no such file or folder, and no hub id (owner/name)")


def _from_files(file: Path, settings: Path | None) -> TokenizerDefinition:
    try:
        data = file.read_bytes()
        beside = settings.read_bytes() if settings is not None and settings.is_file() else None
    except OSError as error:
        raise ConfigError(f"{file}: tokenizer.path: cannot be read: {error.strerror}") from error
    return TokenizerDefinition.from_bytes(data, beside, str(file))


def _from_hub(name: str) -> TokenizerDefinition:
    """A hub repository's tokenizer and settings, both of one commit.

    Settings that cannot be loaded decide about BOS and EOS, so only a hub that says that there are none, now
    or when this commit was loaded before, makes the tokenizer one without them.
    """
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache  # noqa: PLC0415 - heavy
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"{name}: tokenizer.path: hub ids need `pip install tokenloom[hub]`") from error
    with _hub_errors(name, FILE):
        file = Path(hf_hub_download(name, FILE))
        data = file.read_bytes()
    commit = file.parent.name
    settings = None
    with _hub_errors(name, SETTINGS):
        try:
            settings = Path(hf_hub_download(name, SETTINGS, revision=commit)).read_bytes()
        except LocalEntryNotFoundError:
            if try_to_load_from_cache(name, SETTINGS, revision=commit) is None:  # not known to be missing
                raise
        except EntryNotFoundError:
            pass
    return TokenizerDefinition.from_bytes(data, settings, f"{name} ({FILE})")


@contextmanager
def _hub_errors(name: str, file: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        raise ConfigError(
            f"{name}: tokenizer.path: {file}: no such file or folder here, and as a hub id it gives: "
            f"{error}{cause}"
        ) from error


def dump_settings(definition: TokenizerDefinition) -> bytes:
    """The settings as they are kept in the job folder."""
    return json.dumps(dict(definition.settings), sort_keys=True).encode()
