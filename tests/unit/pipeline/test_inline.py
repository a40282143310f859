"""Every stage in one process: results in order, failures, and nothing left when it is left early."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from prep.catalog.schema import ShardLayout
from prep.pipeline.inline import InlineRunner
from prep.pipeline.messages import Failed, Position
from prep.pipeline.plan import Feed
from prep.pipeline.settings import EncoderSettings, StageSettings
from prep.pipeline.tokenizer import TokenBlock
from prep.readers.block import ReadOptions
from prep.sources.listing import SourceFile
from prep.tokenizers.boundaries import Boundaries
from prep.tokenizers.definition import TokenizerDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OPTIONS = ReadOptions()
SETTINGS = StageSettings(OPTIONS, ShardLayout("uint16", with_id=False), Boundaries(None, 0), batch_bytes=200)


class Paths(NamedTuple):
    files: Sequence[SourceFile]

    def local_path(self, file_idx: int) -> str:
        return self.files[file_idx].location

    def release_before(self, file_idx: int) -> None:
        """Nothing was fetched."""

    def wait(self, seconds: float) -> None:
        """All files are here."""


@pytest.fixture
def runner(tokenizer_json: Path) -> Iterator[InlineRunner]:
    definition = TokenizerDefinition.from_bytes(tokenizer_json.read_bytes())
    with InlineRunner() as runner:
        runner.load(EncoderSettings("tokenizers", False, ("probe",)), definition.encoding_json)
        assert runner.ready().error == ""
        runner.configure(SETTINGS)
        yield runner


def feed(paths: Sequence[Path]) -> Feed:
    files = [SourceFile(path.name, path.stat().st_size, str(path), "jsonl") for path in paths]
    return Feed(files, Position(), OPTIONS, SETTINGS.batch_bytes, Paths(files))


def write(path: Path, lines: Sequence[Any]) -> Path:
    data = b"".join(
        line if isinstance(line, bytes) else json.dumps({"text": line}).encode() + b"\n" for line in lines
    )
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def text_bytes(results: Sequence[TokenBlock | Failed]) -> list[int]:
    found: list[int] = []
    for result in results:
        assert isinstance(result, TokenBlock)
        found += result.documents.column("text_bytes").to_pylist()
    return found


def test_units_and_streams_come_in_the_order_of_the_files(tmp_path: Path, runner: InlineRunner) -> None:
    sizes = list(range(1, 61))
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl"]
    paths = [
        write(tmp_path / name, ["x" * size for size in sizes[start : start + 20]])
        for name, start in zip(names, (0, 20, 40), strict=True)
    ]
    results = list(runner.results(feed(paths)))
    assert text_bytes(results) == sizes
    assert len(results) > 3


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_refused_record_is_a_failure_with_its_place(
    tmp_path: Path, runner: InlineRunner, name: str
) -> None:
    path = write(tmp_path / name, ["x" * 150, "y" * 150, b"bad\n"])
    *before, last = runner.results(feed([path]))
    assert text_bytes(before) in ([150], [150, 150])
    assert isinstance(last, Failed)
    assert last.drop is not None
    assert (last.kind, last.drop.reason) == ("input", "bad_record")


def test_a_damaged_stream_is_a_failure_after_what_is_before_it_q01(
    tmp_path: Path, runner: InlineRunner
) -> None:
    path = write(tmp_path / "a.jsonl.gz", [f"{number:0150}" for number in range(1500)])
    path.write_bytes(path.read_bytes()[:-500])
    *before, last = runner.results(feed([path]))
    assert text_bytes(before) == [150] * len(text_bytes(before))
    assert isinstance(last, Failed)
    assert "a.jsonl.gz: damaged or incomplete" in last.message
    assert (last.kind, last.drop) == ("input", None)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_results_that_are_left_early_leave_nothing_open(
    tmp_path: Path, runner: InlineRunner, name: str
) -> None:
    path = write(tmp_path / name, ["x" * 150] * 20)
    before = sorted(str(entry) for entry in Path("/proc/self/fd").iterdir())
    with closing(runner.results(feed([path]))) as results:
        assert isinstance(next(results), TokenBlock)
    assert sorted(str(entry) for entry in Path("/proc/self/fd").iterdir()) == before


def test_a_tokenizer_that_the_backend_refuses_is_told() -> None:
    with InlineRunner() as runner:
        runner.load(EncoderSettings("tokenizers", False, ()), '{"model": {"type": "no such"}}')
        assert "refuses this file" in runner.ready().error
