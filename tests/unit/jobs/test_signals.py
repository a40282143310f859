"""A job that is told to stop says how to go on, and its exit status tells the signal."""

from __future__ import annotations

import http.server
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.jobs.conftest import MakeJob

SECONDS = 5.0


class Stalling(http.server.BaseHTTPRequestHandler):
    """Answers with half of what it promises, and waits."""

    asked: threading.Event
    let_go: threading.Event

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(b'{"text": "x"}\n')
        self.wfile.flush()
        self.asked.set()
        self.let_go.wait()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def stalling_server() -> Iterator[tuple[str, threading.Event]]:
    asked, let_go = threading.Event(), threading.Event()
    handler = type("Handler", (Stalling,), {"asked": asked, "let_go": let_go})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            let_go.set()
            server.shutdown()
            serving.join()


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_a_signal_ends_a_job_that_waits_within_seconds(
    job_file: MakeJob, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    pytest.importorskip("aiohttp")
    with stalling_server() as (url, asked):
        job = job_file([f"{url}/a.jsonl"], processing={"workers": workers})
        with subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", "pretokenize", str(job), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert asked.wait(60)
            process.send_signal(number)
            began = time.monotonic()
            out, err = process.communicate(timeout=60)
            assert time.monotonic() - began < SECONDS
    assert process.returncode == 128 + number
    assert out == ""
    assert f"stopped by {number.name}. What is committed stays; the same command continues." in err
    assert "Traceback" not in err
    assert not (tmp_path / "out" / "catalog.json").exists()
