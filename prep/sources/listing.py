"""From the configuration's paths to the ordered list of source files.

The list is part of a job's identity as (name, size) pairs, where a name is relative to the files' common
root. Order: the order of `paths`, the matches of one glob sorted bytewise; `shuffle.files` sorts them by
keys hashed from the seed.
"""

from __future__ import annotations

import posixpath
import struct
import sysconfig
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from prep.catalog.errors import InputError
from prep.readers import SUFFIXES, format_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prep.config import JobConfig

GLOB_CHARACTERS = "*?["


class SourceFile(NamedTuple):
    """One file to read.

    Attributes:
        name: relative to the common root of all sources; what catalogs and messages say.
        size: bytes, as the file system told when the list was made.
        location: path or URL; where the file is read from, no part of any fingerprint.
        format: one of the readers' names.
        modified: modification time or etag where the file system tells it, for the log.
    """

    name: str
    size: int
    location: str
    format: str
    modified: str = ""

    @property
    def is_local(self) -> bool:
        return "://" not in self.location


def list_sources(config: JobConfig) -> list[SourceFile]:
    """Expand the paths of a configuration.

    Raises:
        InputError: a path matches nothing, is a folder, or has a suffix that tells no format.
    """
    found: dict[str, tuple[int, str]] = {}
    for pattern in config.source.paths:
        for location, size, modified in _expand(pattern, config.source.storage_options):
            found.setdefault(location, (size, modified))
    root = _common_root(found)
    files = []
    for location, (size, modified) in found.items():
        kind = config.source.format
        resolved = format_of(location) if kind == "auto" else kind
        if resolved is None:
            raise InputError(
                f"{location}: source.format is auto, and the suffix tells no format. Known suffixes: "
                f"{', '.join(SUFFIXES)} (text kinds also with .gz or .zst); or set source.format"
            )
        files.append(SourceFile(location[len(root) :], size, location, resolved, modified))
    if config.processing.shuffle.files:
        files = _shuffled(files, config.processing.shuffle.seed)
    return files


def _expand(pattern: str, options: dict[str, Any]) -> Iterable[tuple[str, int, str]]:
    """The files that one pattern names: (location, size, modification time), sorted."""
    import fsspec  # noqa: PLC0415 - 0.1 s, and only listing needs it

    pattern = pattern.replace("{stdlib}", sysconfig.get_path("stdlib"))
    try:
        filesystem, path = fsspec.core.url_to_fs(pattern, **(options if "://" in pattern else {}))
    except (ImportError, ValueError) as error:
        raise InputError(f"{pattern}: source.paths: {error}") from error
    is_glob = any(character in pattern for character in GLOB_CHARACTERS)
    try:
        entries = filesystem.glob(path, detail=True) if is_glob else {path: filesystem.info(path)}
    except FileNotFoundError:
        entries = {}
    except (OSError, ValueError) as error:
        raise InputError(f"{pattern}: source.paths: cannot be listed: {error}") from error
    rows = sorted((name, info) for name, info in entries.items() if info["type"] != "directory")
    if not rows and entries:
        raise InputError(
            f"{pattern}: source.paths: this is a folder; give a glob such as {pattern.rstrip('/')}/*"
        )
    if not rows:
        raise InputError(f"{pattern}: source.paths: no file matches")
    local = "file" in _protocols(filesystem)
    for name, info in rows:
        size = info.get("size")
        if size is None:
            raise InputError(f"{pattern}: source.paths: the server does not tell the size of {name}")
        modified = str(info.get("mtime") or info.get("ETag") or info.get("LastModified") or "")
        yield (name if local else filesystem.unstrip_protocol(name)), int(size), modified


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _common_root(locations: Iterable[str]) -> str:
    """The longest common folder, with its final slash; empty where there is none."""
    folders = [posixpath.dirname(location).split("/") for location in locations]
    shared = 0
    while all(len(folder) > shared and folder[shared] == folders[0][shared] for folder in folders):
        shared += 1
    root = "/".join(folders[0][:shared]) + "/" if shared else ""
    return "" if root.endswith("://") else root


def _shuffled(files: Sequence[SourceFile], seed: int) -> list[SourceFile]:
    keys = [
        xxhash.xxh3_64_intdigest(struct.pack("<QqQ", seed, -1, position)) for position in range(len(files))
    ]
    return [files[position] for position in sorted(range(len(files)), key=keys.__getitem__)]


def identity_of(files: Sequence[SourceFile]) -> list[list[Any]]:
    """What a fingerprint takes of the sources."""
    return [[file.name, file.size] for file in files]
