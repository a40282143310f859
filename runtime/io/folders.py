"""Where a catalog lies: a local folder, or one behind a URL whose files are copied here when needed."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prep.catalog.errors import InputError
from prep.catalog.raw import is_hidden, is_own, list_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Folder(Protocol):
    """A catalog's folder.

    Attributes:
        path: a local folder with the catalog's header and tables, once they were fetched.
        is_copy: whether what is fetched is a copy that should be removed after use.
    """

    path: Path
    is_copy: bool

    def fetch(self, name: str) -> Path:
        """A file of the folder as a local one. One that does not exist is left to whoever opens it."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Relative name and size of every file that is neither hidden nor the catalog's."""


def folder_at(location: str) -> Folder:
    """The folder at a path or fsspec URL."""
    location = location.removeprefix("file://")
    return RemoteFolder(location) if "://" in location else LocalFolder(Path(location))


class LocalFolder:
    """A folder of this machine."""

    is_copy = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def fetch(self, name: str) -> Path:
        return self.path / name

    def files(self) -> Iterator[tuple[str, int]]:
        return list_folder(self.path)


class RemoteFolder:
    """A folder behind a URL; copies lie in a temporary folder that goes with this object."""

    is_copy = True

    def __init__(self, url: str) -> None:
        import fsspec  # noqa: PLC0415 - local folders do not need it

        self.url = url.rstrip("/")
        try:
            self._filesystem, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"{public_url(self.url)}: cannot be opened: {error}") from error
        self.path = Path(tempfile.mkdtemp(prefix="tokenloom-"))
        weakref.finalize(self, _remove, self.path, os.getpid())

    def fetch(self, name: str) -> Path:
        local = self.path / name
        if not local.exists():
            local.parent.mkdir(parents=True, exist_ok=True)
            arriving = local.with_name(f"{local.name}.tmp-{os.getpid()}")
            try:
                self._filesystem.get_file(f"{self._root}/{name}", str(arriving))
            except FileNotFoundError:
                arriving.unlink(missing_ok=True)
                return local
            except OSError as error:
                arriving.unlink(missing_ok=True)
                raise InputError(f"{public_url(self.url)}/{name}: cannot be fetched: {error}") from error
            arriving.replace(local)
        return local

    def files(self) -> Iterator[tuple[str, int]]:
        for path, info in self._filesystem.find(self._root, detail=True).items():
            name = path.removeprefix(self._root).lstrip("/")
            if not is_hidden(name) and not is_own(name):
                yield name, int(info["size"])


def _remove(path: Path, owner: int) -> None:
    """Remove copies, but not from a forked child that ends before its parent."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def public_url(url: str) -> str:
    """A URL without user, password and query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
