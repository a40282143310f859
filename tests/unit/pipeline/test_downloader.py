"""The downloading stage: whole files, a bounded number of bytes, errors instead of waiting for ever."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest

from prep.catalog.errors import InputError, StoreError
from prep.job import run_job
from prep.pipeline.downloader import Downloader
from prep.sources.listing import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PATIENCE = 5.0
"""Seconds after which something that takes milliseconds has failed."""


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def store(memory: Any, contents: Mapping[str, bytes]) -> list[SourceFile]:
    for name, data in contents.items():
        memory.pipe_file(f"/corpus/{name}", data)
    return [
        SourceFile(name, len(data), f"memory://corpus/{name}", "jsonl") for name, data in contents.items()
    ]


@contextmanager
def downloader(
    files: Sequence[SourceFile], folder: Path, limit: int = 10**6, first: int = 0
) -> Iterator[Downloader]:
    loader = Downloader(files, first, folder, limit, {})
    try:
        yield loader
    finally:
        loader.close()


def arrival(loader: Downloader, file_idx: int) -> str:
    """The path of a file when it is there."""
    deadline = time.monotonic() + PATIENCE
    while (path := loader.local_path(file_idx)) is None:
        assert time.monotonic() < deadline, f"file {file_idx} neither came nor failed"
        loader.wait(0.05)
    return path


def test_local_files_are_used_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with downloader([SourceFile("a.jsonl", 3, str(path), "jsonl")], scratch) as loader:
        assert loader.local_path(0) == str(path)
        loader.release_before(1)
        assert list(scratch.iterdir()) == []
    assert path.exists()


def test_remote_files_come_whole_and_go_when_they_are_released(tmp_path: Path, memory: Any) -> None:
    contents = {
        "a.jsonl": b"x" * 3_000_000,
        "b.jsonl.gz": gzip.compress(b"y"),
        "c.jsonl.zst": b"z",
        "d.jsonl": b"",
    }
    with downloader(store(memory, contents), tmp_path, 10**8) as loader:
        for number, (name, data) in enumerate(contents.items()):
            path = arrival(loader, number)
            assert path.startswith(str(tmp_path))
            assert path.endswith(name[name.rindex(".") :]) or name.endswith(".jsonl")
            with open(path, "rb") as stream:  # noqa: PTH123 - the path is a text
                assert stream.read() == data
        assert len(list(tmp_path.iterdir())) == 4
        for number in (0, 1):
            loader.release_before(number + 1)
            loader.release_before(number + 1)
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


def test_files_before_the_first_are_not_fetched(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {f"{number}": b"x" * 10 for number in range(4)})
    with downloader(files, tmp_path, first=2) as loader:
        arrival(loader, 3)
        assert loader.local_path(0) is None
        assert len(list(tmp_path.iterdir())) == 2


def test_no_more_lies_on_disk_than_is_allowed(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {f"{number}": bytes([number]) * 1000 for number in range(12)})
    with downloader(files, tmp_path, 2500) as loader:
        for number in range(12):
            with open(arrival(loader, number), "rb") as stream:  # noqa: PTH123 - the path is a text
                assert stream.read() == bytes([number]) * 1000
            if number + 1 < 12:
                arrival(loader, number + 1)
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2500
            if number + 2 < 12:
                loader.wait(0.01)
                assert loader.local_path(number + 2) is None
            loader.release_before(number + 1)


def test_a_file_larger_than_all_that_is_allowed_comes_alone(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {"a": b"x" * 10, "b": b"y" * 5000, "c": b"z" * 10})
    with downloader(files, tmp_path, 100) as loader:
        arrival(loader, 0)
        loader.wait(0.05)
        assert loader.local_path(1) is None
        loader.release_before(1)
        arrival(loader, 1)
        loader.wait(0.05)
        assert [path.stat().st_size for path in tmp_path.iterdir()] == [5000]
        loader.release_before(2)
        arrival(loader, 2)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what would wait for ever."""

    def interrupt(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("limit", [1, 1000, 10**6])
def test_a_job_ends_however_little_may_lie_on_disk(memory: Any, make_config: Any, limit: int) -> None:
    """A file is given up when nothing of it is needed any more, not when the next one has come."""
    lines = b"".join(json.dumps({"text": f"the quick fox {number}"}).encode() + b"\n" for number in range(30))
    store(memory, {f"{number}.jsonl": lines for number in range(3)})
    config = make_config("memory://corpus/*.jsonl", processing={"download_bytes": limit})
    with time_limit(PATIENCE):
        assert run_job(config).documents == 90


def test_a_file_that_is_gone_is_an_error_and_those_before_it_are_there(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {"a": b"x" * 10, "b": b"y" * 10})
    memory.rm("/corpus/b")
    with downloader(files, tmp_path) as loader:
        assert arrival(loader, 0)
        with pytest.raises(InputError, match=r"b: transfer failed"):
            arrival(loader, 1)
        assert arrival(loader, 0)


@pytest.mark.parametrize("found", [b"", b"x" * 999, b"x" * 1001])
def test_other_bytes_than_were_listed_are_a_mismatch_q60(tmp_path: Path, memory: Any, found: bytes) -> None:
    files = store(memory, {"a.jsonl.gz": b"x" * 1000})
    memory.pipe_file("/corpus/a.jsonl.gz", found)
    with downloader(files, tmp_path) as loader:
        with pytest.raises(
            InputError, match=f"transfer mismatch: expected 1,000 bytes as listed, received {len(found):,}"
        ):
            arrival(loader, 0)
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_grown_is_not_fetched_to_its_end(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {"a.jsonl": b"x" * 1000})
    memory.pipe_file("/corpus/a.jsonl", b"x" * (20 << 20))
    with downloader(files, tmp_path, 2000) as loader:
        with pytest.raises(InputError, match="transfer mismatch: expected 1,000 bytes") as caught:
            arrival(loader, 0)
        received = int(str(caught.value).rpartition(" ")[2].replace(",", ""))
        assert 1000 < received <= 2 << 20


def test_a_folder_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {"a": b"x"})
    with downloader(files, tmp_path / "missing") as loader, pytest.raises(StoreError, match="cannot write"):
        arrival(loader, 0)


class Handler(BaseHTTPRequestHandler):
    """Answers by the first word of the path; a body is 1,000 bytes, and some of it may be missing."""

    released: ClassVar[Event] = Event()

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        if self._answer():
            self.wfile.write(b"x" * (1000 if self._behaviour == "whole" else 700))
            self.wfile.flush()
            if self._behaviour == "stalls":
                self.released.wait(PATIENCE)

    def _answer(self) -> bool:
        self._behaviour = self.path.strip("/").partition("-")[0]
        status = int(self._behaviour) if self._behaviour.isdigit() else 200
        self.send_response(status)
        self.send_header("Content-Length", "1000" if status == 200 else "0")
        self.end_headers()
        return status == 200

    def log_message(self, *_: object) -> None:
        """Nothing to standard error."""


@pytest.fixture
def server() -> Iterator[str]:
    pytest.importorskip("aiohttp")
    Handler.released.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        Handler.released.set()
        http.shutdown()
        thread.join()


def remote(server: str, behaviour: str) -> list[SourceFile]:
    return [SourceFile(f"{behaviour}.jsonl", 1000, f"{server}/{behaviour}-a.jsonl", "jsonl")]


def test_http_files_come_whole(tmp_path: Path, server: str) -> None:
    with downloader(remote(server, "whole"), tmp_path) as loader, open(arrival(loader, 0), "rb") as stream:  # noqa: PTH123
        assert stream.read() == b"x" * 1000


def test_a_short_body_is_an_error_that_names_the_file_q60(tmp_path: Path, server: str) -> None:
    with downloader(remote(server, "short"), tmp_path) as loader:
        with pytest.raises(InputError, match=r"short\.jsonl: transfer"):
            arrival(loader, 0)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", ["403", "404", "500", "503"])
def test_an_answer_that_is_no_file_is_an_error_that_names_it_q60(
    tmp_path: Path, server: str, status: str
) -> None:
    with (
        downloader(remote(server, status), tmp_path) as loader,
        pytest.raises(InputError, match=rf"{status}\.jsonl"),
    ):
        arrival(loader, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    files = remote(f"http://127.0.0.1:{port}", "gone")
    with (
        downloader(files, tmp_path) as loader,
        pytest.raises(InputError, match=r"gone\.jsonl: transfer failed"),
    ):
        arrival(loader, 0)


def test_closing_does_not_wait_for_a_server_that_stalls(tmp_path: Path, server: str) -> None:
    began = time.monotonic()
    with downloader(remote(server, "stalls"), tmp_path) as loader:
        loader.wait(0.2)
        assert loader.local_path(0) is None
    assert time.monotonic() - began < 5


def test_closing_ends_the_thread_and_removes_what_is_there(tmp_path: Path, memory: Any) -> None:
    files = store(memory, {f"{number}": b"x" * 100 for number in range(50)})
    with downloader(files, tmp_path, 250) as loader:
        arrival(loader, 0)
    assert not loader._thread.is_alive()
    assert list(tmp_path.iterdir()) == []
