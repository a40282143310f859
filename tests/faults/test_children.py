"""The pipeline as a library: exact state at every document, and child processes that never outlive it."""

from __future__ import annotations

import errno
import functools
import gzip
import http.server
import json
import multiprocessing.context
import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from prep.catalog.errors import InputError, TokenloomError, WorkerError
from prep.job import run_job
from prep.pipeline import TokenProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from prep.config import JobConfig
    from tests.conftest import MakeConfig

GONE_SECONDS = 5.0
BLOCKS = {"documents": "block", "block_documents": 7, "seed": 11}


def texts(seed: int, count: int, longest: int = 30) -> list[str]:
    rng = random.Random(seed)  # noqa: S311
    words = ["the", "quick", "brown", "naïve", "東京", "12345"]
    return [" ".join(rng.choices(words, k=rng.randint(1, longest))) for _ in range(count)]


def as_lines(documents: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A file of each kind with bad records and blank lines among the documents."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(
        b"{broken\n" + as_lines(texts(1, 9)) + b"\n{broken\n" + as_lines(texts(2, 4))
    )
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"\n" + as_lines(texts(3, 8)) + b"{broken\n"))
    pq.write_table(pa.table({"text": [None, *texts(4, 8)]}), folder / "c.parquet", row_group_size=3)
    (folder / "d.json").write_text(json.dumps([{"text": text} for text in texts(5, 6)]), encoding="utf-8")
    (folder / "e.txt").write_text("one document", encoding="utf-8")
    return [str(folder / "*")]


def children() -> list[psutil.Process]:
    """Live tokenizer and reader processes of this process."""
    return [child for child in psutil.Process().children(recursive=True) if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    try:
        return "--multiprocessing-fork" in process.cmdline()
    except psutil.Error:
        return False


def check_no_children() -> None:
    end = time.monotonic() + GONE_SECONDS
    while found := children():
        assert time.monotonic() < end, f"still there: {found}"
        time.sleep(0.01)


def config_for(make_config: MakeConfig, files: list[str], **processing: Any) -> JobConfig:
    fields = {"batch_bytes": 300, "on_bad_record": "skip", **processing}
    return make_config(files, processing=fields)


def ids_of(processor: TokenProcessor) -> list[list[int]]:
    return [ids.tolist() for ids in processor]


def states_of(processor: TokenProcessor) -> Iterator[tuple[dict[str, Any], list[list[int]]]]:
    """The state before any document and after each, with the documents so far."""
    seen: list[list[int]] = []
    yield processor.get_state(), list(seen)
    for ids in processor:
        seen.append(ids.tolist())
        yield processor.get_state(), list(seen)


@pytest.mark.parametrize("shuffle", [{}, BLOCKS, {**BLOCKS, "files": True}], ids=["ordered", "blocks", "all"])
def test_q32_a_state_of_any_document_continues_exactly_after_it(
    make_config: MakeConfig, files: list[str], shuffle: dict[str, Any]
) -> None:
    """Q32: save after every document, restore in a fresh processor: before + after is the whole sequence."""
    config = config_for(make_config, files, shuffle=shuffle)
    whole = ids_of(TokenProcessor(files, config))
    assert len(whole) == 36
    states = list(states_of(TokenProcessor(files, config)))
    assert len(states) == len(whole) + 1
    for number, (state, before) in enumerate(states):
        assert state["total_docs_yielded"] == number
        processor = TokenProcessor(files, config)
        processor.load_state(json.loads(json.dumps(state)))
        assert processor.get_state() == state
        assert before + ids_of(processor) == whole
        assert processor.total_docs_yielded == len(whole)


def test_q32_the_same_with_processes_and_another_block_size(
    make_config: MakeConfig, files: list[str]
) -> None:
    shuffled = config_for(make_config, files, shuffle=BLOCKS)
    whole = ids_of(TokenProcessor(files, shuffled))
    states = list(states_of(TokenProcessor(files, shuffled)))
    parallel = config_for(make_config, files, shuffle=BLOCKS, workers=2, readers=2, batch_bytes=1_000)
    assert ids_of(TokenProcessor(files, parallel)) == whole
    for number in (1, 17, len(whole)):
        processor = TokenProcessor(files, parallel)
        processor.load_state(states[number][0])
        assert states[number][1] + ids_of(processor) == whole
    check_no_children()


def test_a_state_without_position_continues_too(make_config: MakeConfig, files: list[str]) -> None:
    """File, document and total are what a caller may have kept of its own."""
    config = config_for(make_config, files)
    whole = ids_of(TokenProcessor(files, config))
    for state, before in states_of(TokenProcessor(files, config)):
        processor = TokenProcessor(files, config)
        processor.load_state({name: value for name, value in state.items() if name != "position"})
        assert before + ids_of(processor) == whole


def test_a_stopped_processor_continues_by_itself(make_config: MakeConfig, files: list[str]) -> None:
    config = config_for(make_config, files)
    whole = ids_of(TokenProcessor(files, config))
    processor = TokenProcessor(files, config)
    iterator = iter(processor)
    first = [next(iterator).tolist() for _ in range(10)]
    iterator.close()
    assert processor.progress == 0
    assert first + ids_of(processor) == whole
    assert ids_of(processor) == []


@pytest.fixture
def large(tmp_path: Path) -> list[str]:
    """Enough for many blocks: a plain file and a compressed one."""
    folder = tmp_path / "large"
    folder.mkdir()
    data = as_lines(texts(6, 3_000, 100))
    (folder / "a.jsonl").write_bytes(data)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(data, 1))
    return [str(folder / "*")]


@pytest.mark.parametrize("documents", [0, 1, 3_500])
def test_an_iterator_that_is_closed_leaves_no_process(
    make_config: MakeConfig, large: list[str], documents: int
) -> None:
    config = config_for(make_config, large, workers=2, batch_bytes=20_000)
    iterator = iter(TokenProcessor(large, config))
    for _ in range(documents):
        next(iterator)
    assert bool(children()) == (documents > 0)
    iterator.close()
    check_no_children()


def test_an_iterator_that_is_dropped_leaves_no_process(make_config: MakeConfig, large: list[str]) -> None:
    config = config_for(make_config, large, workers=2, batch_bytes=20_000)
    iterator = iter(TokenProcessor(large, config))
    next(iterator)
    assert children()
    del iterator
    check_no_children()


def test_an_exception_of_the_consumer_leaves_no_process(make_config: MakeConfig, large: list[str]) -> None:
    config = config_for(make_config, large, workers=2, batch_bytes=20_000)

    def consume() -> None:
        for _ in TokenProcessor(large, config):
            assert children()
            raise KeyError("of the consumer")

    with pytest.raises(KeyError):
        consume()
    check_no_children()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["z.jsonl", "z.jsonl.gz"])
def test_an_error_in_the_middle_comes_after_what_is_before_it_and_leaves_no_process(
    make_config: MakeConfig, tmp_path: Path, name: str, workers: int
) -> None:
    data = as_lines(texts(7, 500)) + b"{broken\n" + as_lines(texts(8, 500))
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    config = make_config(path, processing={"workers": workers, "batch_bytes": 2_000})
    seen: list[int] = []

    def consume() -> None:
        seen.extend(len(ids) for ids in TokenProcessor([str(path)], config))

    with pytest.raises(InputError, match="row 501") as caught:
        consume()
    assert name in str(caught.value)
    # What is before the batch of the broken record has come.
    assert 400 < len(seen) <= 500
    check_no_children()


def test_q23_a_child_that_is_killed_again_and_again_ends_in_an_error_not_a_hang(
    make_config: MakeConfig, large: list[str]
) -> None:
    config = config_for(make_config, large, workers=1, batch_bytes=20_000)
    iterator = iter(TokenProcessor(large, config))
    next(iterator)
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.002):
            for child in children():
                child.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(WorkerError, match="signal 9"):
            list(iterator)
    finally:
        stop.set()
        killer.join()
    check_no_children()


def test_q19_what_is_in_flight_is_bounded_by_blocks_not_by_the_input(
    make_config: MakeConfig, tmp_path: Path, harness: ModuleType
) -> None:
    """Q19: a consumer that stops reading stops the pipeline, whatever the size of the input."""
    path = tmp_path / "large.jsonl.gz"
    path.write_bytes(gzip.compress(as_lines(texts(9, 2_000, 100)) * 40, 1))
    workers, batch_bytes = 2, 100_000
    config = make_config(path, processing={"workers": workers, "batch_bytes": batch_bytes})
    iterator = iter(TokenProcessor([str(path)], config))
    next(iterator)
    harness.until(lambda: idle(children()), "the children have nothing more to do")
    held = sum(anonymous_bytes(process.pid) for process in [psutil.Process(), *children()])
    assert held < 8 * workers * 4 * batch_bytes
    iterator.close()
    check_no_children()


def idle(processes: list[psutil.Process]) -> bool:
    """Whether processes use no processor time for a while."""

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before = used()
    time.sleep(0.3)
    return used() == before


def anonymous_bytes(pid: int) -> int:
    """Bytes of the files without a name that a process holds open; each counts for its allocated size."""
    total = 0
    for descriptor in os.scandir(f"/proc/{pid}/fd"):
        try:
            if "memfd:" in os.readlink(descriptor.path):  # noqa: PTH115 - no file of that name exists
                total += os.stat(descriptor.path).st_blocks * 512  # noqa: PTH116
        except FileNotFoundError:
            continue
    return total


def test_q24_the_tokenizer_used_in_the_parent_first_does_not_hang_the_children(
    make_config: MakeConfig, tmp_path: Path, tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q24: encode in the parent with the library's threads, then tokenize long documents in processes."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    library = tokenizers.Tokenizer.from_file(str(tokenizer_json))
    library.encode_batch(texts(1, 100))
    path = tmp_path / "long.jsonl"
    path.write_bytes(as_lines(["the quick brown fox " * 10_000] * 8))
    config = make_config(
        path, processing={"workers": 4, "batch_bytes": 200_000}, tokenizer={"backend": "tokenizers"}
    )
    lengths = [len(ids) for ids in TokenProcessor([str(path)], config)]
    assert len(set(lengths)) == 1
    assert len(lengths) == 8
    assert lengths[0] > 32_000
    check_no_children()


def test_q25_a_remote_file_system_used_in_the_parent_first_does_not_hang_the_children(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    """Q25: read through fsspec in the parent, then tokenize files behind the same server in processes."""
    expected = []
    for number in range(4):
        documents = texts(20 + number, 20)
        (tmp_path / f"{number}.jsonl").write_bytes(as_lines(documents))
        expected += documents
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), quiet(handler)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            urls = [f"http://127.0.0.1:{server.server_port}/{number}.jsonl" for number in range(4)]
            with fsspec.open(urls[0], "rb") as stream:
                assert stream.read(1) == b"{"
            config = make_config(urls, processing={"workers": 4})
            began = time.monotonic()
            assert len(ids_of(TokenProcessor(urls, config))) == len(expected)
            assert time.monotonic() - began < 10
        finally:
            server.shutdown()
            thread.join()
    check_no_children()


def quiet(handler: functools.partial[Any]) -> Any:
    """The handler without its lines on standard error."""

    class Quiet(handler.func):  # type: ignore[misc,name-defined]
        def log_message(self, *_: object) -> None:
            return

    return functools.partial(Quiet, **handler.keywords)


def test_a_start_that_fails_leaves_no_process(make_config: MakeConfig, large: list[str]) -> None:
    config = make_config(
        large, processing={"workers": 2}, tokenizer={"eos_token": "none of this tokenizer's"}
    )
    with pytest.raises(TokenloomError):
        next(iter(TokenProcessor(large, config)))
    check_no_children()


def test_a_process_that_the_system_does_not_give_is_an_error_that_says_what_to_do(
    make_config: MakeConfig, large: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of five; the two that run already end, and the lines to all of them are closed."""
    start = multiprocessing.context.SpawnProcess.start
    started: list[Any] = []

    def refuse(process: Any) -> None:
        if len(started) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        started.append(process)
        start(process)

    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(WorkerError, match="tokenizer process cannot be started: Too many open files; lower"):
        run_job(make_config(large, processing={"workers": 5}))
    assert len(started) == 2
    check_no_children()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
