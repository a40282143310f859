"""Local files that a pattern matches.

The standard library's `glob` passes over folders that it may not list and walks round a loop of links forty
times; either would change a corpus without a word.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GLOB_CHARACTERS = re.compile(r"[*?[]")

Identity = tuple[int, int]
"""Device and inode of a folder."""


def matches(pattern: str) -> Iterator[str]:
    """Paths that a pattern matches; `**` stands for any number of folders, links to folders among them.

    Names that begin with a dot are matched only by a pattern that does. A link back to a folder that `**`
    came through is not followed. A path may come more than once.

    Raises:
        OSError: a folder cannot be listed.
    """
    return _below("", pattern.split("/"), frozenset())


def _below(folder: str, parts: Sequence[str], above: frozenset[Identity]) -> Iterator[str]:
    """Paths in a folder ("" the current one, or a path with its final slash) that the parts match.

    Args:
        folder: where to look.
        parts: what is left of the pattern.
        above: folders that the present run of `**` came through.
    """
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _any_depth(folder, rest, above)
    elif not rest:
        yield from _names(folder, part)
    else:
        for path in _names(folder, part) if part else [folder]:
            if _is_folder(path or "/"):
                yield from _below(f"{path}/", rest, frozenset())


def _any_depth(folder: str, rest: Sequence[str], above: frozenset[Identity]) -> Iterator[str]:
    status = Path(folder).stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    yield from _below(folder, rest or ["*"], frozenset())
    with os.scandir(folder or ".") as entries:
        names = [entry.name for entry in entries if entry.name[0] != "." and _may_be_folder(entry)]
    for name in names:
        if _is_folder(folder + name):
            yield from _any_depth(f"{folder}{name}/", rest, above | {here})


def _names(folder: str, part: str) -> list[str]:
    """Paths in a folder whose last name one part of a pattern matches."""
    if not GLOB_CHARACTERS.search(part):
        return [folder + part] if _mode(folder + part, follow_links=False) is not None else []
    with os.scandir(folder or ".") as entries:
        names = [entry.name for entry in entries if part[0] == "." or entry.name[0] != "."]
    return [folder + name for name in fnmatch.filter(names, part)]


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Told from the listing, so that not every file is asked what it is."""
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def _is_folder(path: str) -> bool:
    mode = _mode(path, follow_links=True)
    return mode is not None and stat.S_ISDIR(mode)


def _mode(path: str, *, follow_links: bool) -> int | None:
    """What a path is, or None where nothing is."""
    try:
        return Path(path).stat(follow_symlinks=follow_links).st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return None
