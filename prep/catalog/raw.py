"""What a catalog of raw files adds to one of token shards: its table, and the offsets of JSONL rows."""

from __future__ import annotations

import os
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from prep.catalog.errors import InputError
from prep.catalog.names import HEADER, JOB_FOLDER, SHARDS, SOURCES
from prep.catalog.schema import SHARD_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

INDEX_FOLDER = "index"
OFFSETS_SUFFIX = ".offsets"
OFFSET_BYTES = 8

_TEXT_BYTES = SHARD_TABLE.get_field_index("text_bytes")

RAW_SHARD_TABLE = SHARD_TABLE.set(_TEXT_BYTES, pa.field("text_bytes", pa.uint64())).append(
    pa.field("offsets_checksum", pa.uint64())
)
"""`shards.parquet` of a catalog of raw files: token columns are null, and so is text that no row has."""


def offsets_file(path: str) -> str:
    """Where the row offsets of a JSONL file lie, relative to the catalog."""
    return f"{INDEX_FOLDER}/{path}{OFFSETS_SUFFIX}"


def is_own(name: str) -> bool:
    """Whether a file of the folder is the catalog's and no data, by its relative name."""
    parts = PurePosixPath(name).parts
    return (
        name in (HEADER, SHARDS, SOURCES)
        or parts[0] == JOB_FOLDER
        or (parts[0] == INDEX_FOLDER and name.endswith(OFFSETS_SUFFIX))
    )


def is_hidden(name: str) -> bool:
    """Whether a file or a folder above it has a name that begins with a dot."""
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def list_folder(folder: Path) -> Iterator[tuple[str, int]]:
    """The files below a folder that are neither hidden nor the catalog's: relative name and size.

    Raises:
        InputError: a folder in it cannot be listed, or it holds what is neither a file nor a folder.
    """
    for above, folders, files in os.walk(folder, onerror=_refuse):
        place = PurePosixPath(os.path.relpath(above, folder))
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in folders:
            if os.path.islink(os.path.join(above, name)):  # noqa: PTH114, PTH118 - there may be a million
                raise InputError(f"{folder / place / name}: a link to a folder; put the folder in its place")
        for name in files:
            relative = str(place / name)
            if not is_hidden(relative) and not is_own(relative):
                yield relative, _size(os.path.join(above, name))  # noqa: PTH118 - as above


def _size(path: str) -> int:
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: no regular file; move it away")
    return status.st_size


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror}") from error


def difference(recorded: Mapping[str, int], found: Mapping[str, int]) -> str | None:
    """How the files of a folder differ from what a catalog says of them; None: they do not."""
    if recorded == found:
        return None
    missing = sorted(recorded.keys() - found.keys())
    new = sorted(found.keys() - recorded.keys())
    resized = sorted(name for name in recorded.keys() & found.keys() if recorded[name] != found[name])
    examples = [f"{name} is missing" for name in missing[:1]] + [f"{name} is new" for name in new[:1]]
    examples += [
        f"{name} has {found[name]:,} bytes where {recorded[name]:,} are expected" for name in resized[:1]
    ]
    return (
        f"{len(missing):,} files missing, {len(new):,} new, {len(resized):,} of another size "
        f"({'; '.join(examples)})"
    )
