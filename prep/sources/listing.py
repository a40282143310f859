"""From the configuration's paths to the ordered list of source files.

The list is part of a job's identity as (name, size) pairs, where a name is relative to the files' common
root. Order: the order of `paths`, the matches of one glob sorted bytewise; `shuffle.files` sorts them by
keys hashed from the seed.
"""

from __future__ import annotations

import posixpath
import struct
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from prep.catalog.errors import InputError
from prep.readers import SUFFIXES, format_of
from prep.sources import globs
from prep.sources.locations import describe_error, nominal_path, public_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prep.config import JobConfig


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
    root = _common_root(map(nominal_path, found))
    files = []
    for location, (size, modified) in found.items():
        path, kind = nominal_path(location), config.source.format
        resolved = format_of(path) if kind == "auto" else kind
        if resolved is None:
            shown = public_location(location)
            raise InputError(
                f"{shown}: source.format is auto, and the suffix tells no format. Known suffixes: "
                f"{', '.join(SUFFIXES)} (text kinds also with .gz or .zst); or set source.format"
            )
        files.append(SourceFile(path[len(root) :], size, location, resolved, modified))
    if config.processing.shuffle.files:
        files = _shuffled(files, config.processing.shuffle.seed)
    return files


def _expand(pattern: str, options: dict[str, Any]) -> Iterable[tuple[str, int, str]]:
    """The files that one pattern names: (location, size, modification time), sorted.

    Raises:
        InputError: nothing matches, it is a folder, or it cannot be listed.
    """
    pattern = pattern.replace("{stdlib}", sysconfig.get_path("stdlib")).removeprefix("file://")
    shown = public_location(pattern)
    try:
        found = list(_list_remote(pattern, options) if "://" in pattern else _list_local(pattern))
    except (OSError, ValueError, ImportError) as error:
        reason = describe_error(error, pattern)
        raise InputError(f"{shown}: source.paths: cannot be listed: {reason}") from None
    if not found:
        raise InputError(f"{shown}: source.paths: no file matches")
    return sorted(found)


def _list_local(pattern: str) -> Iterable[tuple[str, int, str]]:
    literal = not _is_glob(pattern) or Path(pattern).is_file()
    for match in [pattern] if literal else globs.matches(pattern):
        path = Path(match)
        if not _is_text(match):
            raise InputError(f"{match!r}: source.paths: the file's name is not UTF-8; rename it")
        if path.is_file():
            status = path.stat()
            yield str(path.absolute()), status.st_size, str(status.st_mtime_ns)
        elif path.is_dir():
            if not _is_glob(pattern):
                raise InputError(
                    f"{pattern}: source.paths: this is a folder; give a glob such as {path / '*'}"
                )
        elif path.is_symlink():
            raise InputError(f"{match}: source.paths: a link that leads to no file; mend or remove it")


def _list_remote(pattern: str, options: dict[str, Any]) -> Iterable[tuple[str, int, str]]:
    import fsspec  # noqa: PLC0415 - 0.1 s, and local files do not need it

    filesystem, path = fsspec.core.url_to_fs(pattern, **options)
    try:
        entries = filesystem.glob(path, detail=True) if _is_glob(pattern) else {path: filesystem.info(path)}
    except FileNotFoundError as error:
        if error.__cause__ is None:
            return
        # Some file systems say so of a server that does not answer, too.
        raise InputError(
            f"{public_location(pattern)}: source.paths: no file matches: "
            f"{describe_error(error.__cause__, pattern)}"
        ) from None
    for name, info in entries.items():
        if info["type"] == "directory":
            continue
        location = _in_chain(pattern, filesystem.unstrip_protocol(name))
        described = info if info.get("size") is not None else filesystem.info(name)
        if described.get("size") is None:
            shown = public_location(location)
            raise InputError(f"{shown}: source.paths: the server does not tell the file's size")
        modified = described.get("mtime") or described.get("ETag") or described.get("LastModified") or ""
        yield location, int(described["size"]), str(modified)


def _in_chain(pattern: str, location: str) -> str:
    """A file's URL with what a chained URL (`zip://*.jsonl::/data/a.zip`) has around it."""
    layers = pattern.split("::")
    number = next(number for number, layer in enumerate(layers) if "://" in layer)
    return "::".join([*layers[:number], location, *layers[number + 1 :]])


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_glob(pattern: str) -> bool:
    return globs.GLOB_CHARACTERS.search(public_location(pattern)) is not None


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
