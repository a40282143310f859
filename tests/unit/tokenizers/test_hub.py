"""A tokenizer by its hub id, from a small hub on the loopback address: what is found, missing, or broken."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from prep.tokenizers.definition import FILE, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import WriteJsonl

pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")

SECRET = "hf_secretsecretsecretsecretsecretsecre"
COMMITS = ("1" * 40, "2" * 40)
PROCESS_SECONDS = 60
IMPATIENT = "import sys, time; time.sleep = lambda _: None; from jobs.cli import main; sys.exit(main())"
"""Runs the command without the waits between the hub library's tries."""


@dataclass
class Hub:
    """A hub with one repository, `owner/name`.

    Attributes:
        files: the repository's files by name.
        broken: names of files for which the server fails.
        cut: names of files that end early.
        moves: another commit comes when the tokenizer has been loaded; it has no settings.
        requests: method, path and the token that came with each request.
    """

    files: dict[str, bytes]
    url: str = ""
    broken: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    moves: bool = False
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def commit(self, revision: str) -> str:
        if revision in COMMITS:
            return revision
        loaded = any(method == "GET" and FILE in path for method, path, _ in self.requests)
        return COMMITS[self.moves and loaded]


class _Answer(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        hub = self.hub
        hub.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
        repository, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repository != "owner/name":
            self._fail(404, "RepoNotFound")
        elif name in hub.broken:
            self._fail(500, "")
        elif name not in hub.files or (name == SETTINGS and hub.commit(revision) == COMMITS[1]):
            self._fail(404, "EntryNotFound", hub.commit(revision))
        else:
            self._send(hub.files[name], hub.commit(revision), with_body=with_body, cut=name in hub.cut)

    def _send(self, data: bytes, commit: str, *, with_body: bool, cut: bool) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
            self.close_connection = True

    def _fail(self, status: int, code: str, commit: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if commit:
            self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing."""


@pytest.fixture
def hub(tokenizer_json: Path) -> Iterator[Hub]:
    settings = json.dumps({"eos_token": "<|endoftext|>", "add_bos_token": False}).encode()
    made = Hub({FILE: tokenizer_json.read_bytes(), SETTINGS: settings})
    handler = type("Handler", (_Answer,), {"hub": made})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


class Result(NamedTuple):
    """What a command left: exit status, standard output, standard error, and the job's log."""

    code: int
    out: str
    err: str
    log: str


@pytest.fixture
def pretokenize(hub: Hub, tmp_path: Path, write_jsonl: WriteJsonl) -> Callable[..., Result]:
    """Runs a job whose tokenizer is a hub id, in a process of its own with an empty cache and a token."""
    write_jsonl(tmp_path / "a.jsonl", [{"text": "the quick brown fox"}])
    config = tmp_path / "job.yaml"
    config.write_text(
        f"name: hub\nsource: {{paths: {tmp_path / 'a.jsonl'}}}\nprocessing: {{workers: 0}}\n"
        f"tokenizer: {{path: owner/name}}\noutput: {{path: {tmp_path / 'out'}}}\n"
    )

    def run(*overrides: str, **environment: str) -> Result:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        hub_variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": SECRET}
        sets = [f"--set={override}" for override in overrides]
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, "pretokenize", str(config), *sets],
            env=kept | hub_variables | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
        )
        log = tmp_path / "out/_job/run.log"
        return Result(done.returncode, done.stdout, done.stderr, log.read_text() if log.exists() else "")

    return run


def test_a_hub_id_gives_the_tokenizer_and_its_settings(
    hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path
) -> None:
    result = pretokenize()
    assert result.code == 0, result.err
    assert json.loads((tmp_path / "out/_job" / SETTINGS).read_text())["eos_token"] == "<|endoftext|>"
    assert any(authorization == f"Bearer {SECRET}" for *_, authorization in hub.requests)


def test_what_is_said_holds_no_token_and_no_request(hub: Hub, pretokenize: Callable[..., Result]) -> None:
    """Addresses that a hub redirects to are signed, so requests are not logged either."""
    for path, code in (("owner/name", 0), ("owner/missing", 2)):
        result = pretokenize(f"tokenizer.path={path}")
        assert result.code == code
        shown = result.out + result.err + result.log
        assert SECRET not in shown
        assert "HTTP Request" not in shown
    assert hub.requests


def test_a_repository_without_settings_has_none(
    hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path
) -> None:
    del hub.files[SETTINGS]
    assert pretokenize().code == 0
    assert json.loads((tmp_path / "out/_job" / SETTINGS).read_text()) == {}


@pytest.mark.parametrize("with_settings", [True, False])
def test_what_was_loaded_once_is_found_offline(
    hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path, with_settings: bool
) -> None:
    if not with_settings:
        del hub.files[SETTINGS]
    assert pretokenize().code == 0
    kept = (tmp_path / "out/_job" / SETTINGS).read_bytes()
    shutil.rmtree(tmp_path / "out")
    hub.requests.clear()
    result = pretokenize(HF_HUB_OFFLINE="1")
    assert result.code == 0, result.err
    assert hub.requests == []
    assert (tmp_path / "out/_job" / SETTINGS).read_bytes() == kept


def test_both_files_are_of_one_commit(hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path) -> None:
    hub.moves = True
    assert pretokenize().code == 0
    assert json.loads((tmp_path / "out/_job" / SETTINGS).read_text())["eos_token"] == "<|endoftext|>"


@pytest.mark.parametrize(
    ("path", "named"),
    [("owner/missing", "owner/missing"), ("owner/name", FILE)],
    ids=["repository", "file"],
)
def test_what_the_hub_lacks_is_named(
    hub: Hub, pretokenize: Callable[..., Result], path: str, named: str
) -> None:
    del hub.files[FILE]
    result = pretokenize(f"tokenizer.path={path}")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "tokenizer.path" in result.err
    assert named in result.err


@pytest.mark.parametrize("name", [FILE, SETTINGS])
def test_a_server_that_fails_is_no_missing_file(
    hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    """Case Q60: settings that cannot be loaded decide about BOS and EOS, so nothing goes on without them."""
    hub.broken.add(name)
    result = pretokenize()
    assert result.code == 2
    assert "Traceback" not in result.err
    assert f"owner/name: tokenizer.path: {name}" in result.err
    assert "500" in result.err
    assert not (tmp_path / "out/catalog.json").exists()


@pytest.mark.parametrize("name", [FILE, SETTINGS])
def test_a_file_that_ends_early_is_an_error(
    hub: Hub, pretokenize: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    hub.cut.add(name)
    result = pretokenize()
    assert result.code == 2
    assert "Traceback" not in result.err
    assert f"owner/name: tokenizer.path: {name}" in result.err
    assert not (tmp_path / "out/catalog.json").exists()


def test_a_hub_that_cannot_be_reached_is_an_error(pretokenize: Callable[..., Result]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    result = pretokenize(HF_ENDPOINT=f"http://127.0.0.1:{port}")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "tokenizer.path" in result.err
