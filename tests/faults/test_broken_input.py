"""Input that is cut, damaged or changed under the job: an error with the place, never a short corpus."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tests.faults.conftest import MakeJob
    from tests.faults.harness import Command, Job

RECORDS = 1_000
NEAR_BYTES = 16_384


def thousand_lines(seed: int = 1) -> bytes:
    rng = random.Random(seed)  # noqa: S311
    lines = [
        json.dumps({"id": i, "text": f"record {i} {rng.random()} {rng.random()}"}) for i in range(RECORDS)
    ]
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(thousand_lines())
    return folder


@pytest.fixture
def job(request: pytest.FixtureRequest, make_job: MakeJob, harness: ModuleType, sources: Path) -> Job:
    """A job over `sources` that accepts no bad record; every stage in one process unless a test says more."""
    tree = harness.read_tree(make_job("small").config)
    tree["source"] = {"paths": [str(sources / "*")], "text_field": "text"}
    tree["processing"] = {"workers": getattr(request, "param", 0), "batch_bytes": 10_000}
    tree["tokenizer"]["backend"] = "auto"
    job: Job = harness.Job(sources.parent, tree)
    return job


def failed(job: Job, path: Path, status: int = 3) -> str:
    """Run the job, which must fail because of a file; its message. There is no catalog."""
    command = job.run(status=status)
    message = command.errors.partition("tokenloom: error: ")[2]
    assert "Traceback" not in command.errors
    assert path.name in message
    assert not (job.output / "catalog.json").exists()
    job.check_interrupted()
    return message


def numbers_of(pattern: str, message: str) -> list[int]:
    return [int(found.replace(",", "")) for found in re.findall(pattern, message)]


both_ways = pytest.mark.parametrize("job", [0, 2], indirect=True, ids=["one process", "two tokenizers"])


def check_line(message: str, readable: bytes) -> None:
    """The line that is named is the one where the readable text ends, or shortly before it."""
    (line,) = numbers_of(r"line ([\d,]+)", message)
    rest = readable.split(b"\n")[line:]
    assert 1 < line <= readable.count(b"\n") + 1
    assert sum(map(len, rest)) < NEAR_BYTES


@both_ways
@pytest.mark.parametrize("members", [1, 3])
def test_q01_a_gzip_file_cut_at_60_percent(job: Job, sources: Path, members: int) -> None:
    """Q01: path, line and compressed offset; nothing of it in the catalog."""
    data, path = thousand_lines(), sources / "b.jsonl.gz"
    step = len(data) // members + 1
    whole = b"".join(gzip.compress(data[i : i + step]) for i in range(0, len(data), step))
    cut = whole[: len(whole) * 6 // 10]
    path.write_bytes(cut)
    message = failed(job, path)
    readable, rest = b"", cut
    while rest:
        stream = zlib.decompressobj(wbits=31)
        readable += stream.decompress(rest)
        rest = stream.unused_data
    check_line(message, readable)
    (offset,) = numbers_of(r"compressed byte ([\d,]+)", message)
    assert 0 < offset <= len(cut)
    check_line(failed(job, path), readable)  # the same again after a restart


@both_ways
def test_q01_a_zstd_file_cut_at_60_percent(job: Job, sources: Path) -> None:
    path = sources / "b.jsonl.zst"
    whole = zstandard.compress(b"".join(map(thousand_lines, range(8))))
    cut = whole[: len(whole) * 6 // 10]
    path.write_bytes(cut)
    message = failed(job, path)
    check_line(message, zstandard.ZstdDecompressor().decompressobj().decompress(cut))
    assert numbers_of(r"compressed byte ([\d,]+)", message)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_flipped_byte_in_compressed_data(job: Job, sources: Path, suffix: str) -> None:
    path = sources / f"b.jsonl.{suffix}"
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    data = thousand_lines()
    whole = bytearray(gzip.compress(data) if suffix == "gz" else compressor.compress(data))
    whole[len(whole) * 6 // 10] ^= 0x55
    path.write_bytes(whole)
    failed(job, path)


@pytest.mark.parametrize("suffix", ["jsonl.gz", "jsonl.zst", "txt.gz"])
def test_a_compressed_file_that_is_none(job: Job, sources: Path, suffix: str) -> None:
    path = sources / f"b.{suffix}"
    path.write_bytes(b'{"text": "plain"}\n')
    failed(job, path)


@both_ways
def test_q01_q11_bytes_that_are_not_utf8_in_line_3(job: Job, sources: Path) -> None:
    """Q01, second file: FF FE inside line 3 of a gzip file."""
    path = sources / "b.jsonl.gz"
    lines = [b'{"text": "one"}', b'{"text": "two"}', b'{"text": "th\xff\xferee"}', b'{"text": "four"}']
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    message = failed(job, path)
    assert "row 3" in message
    assert f"byte {len(lines[0]) + len(lines[1]) + 2}" in message
    skipping = job.run("--json", processing__on_bad_text="skip", output__path=job.output.with_name("other"))
    ledger = json.loads(skipping.printed)["ledger"]
    assert ledger["rejected"]["bad_text"] == 1
    assert ledger["read"] == RECORDS + 4 == ledger["written"] + 1


def table() -> pa.Table:
    return pa.table({"text": [f"row {i} of a table" for i in range(2_000)]})


def write_table(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table(), path, row_group_size=100, compression="none", use_dictionary=False)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table(), str(path))
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table().schema) as writer:
            writer.write_table(table(), max_chunksize=100)


@pytest.mark.parametrize("name", ["b.parquet", "b.feather", "b.arrow"])
@pytest.mark.parametrize("percent", [0, 60, 99])
def test_q01_a_table_cut_short(job: Job, sources: Path, name: str, percent: int) -> None:
    path = sources / name
    write_table(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * percent // 100])
    failed(job, path)


@both_ways
def test_a_parquet_file_with_a_page_overwritten(job: Job, sources: Path) -> None:
    path = sources / "b.parquet"
    pq.write_table(table(), path, row_group_size=100, compression="zstd")
    data = bytearray(path.read_bytes())
    data[1_000:1_400] = b"\x07" * 400
    path.write_bytes(data)
    failed(job, path)


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.jsonl.zst", "b.parquet", "b.arrow", "b.json"])
def test_an_empty_file_is_an_error_or_has_no_documents(job: Job, sources: Path, name: str) -> None:
    path = sources / name
    path.write_bytes(b"")
    command = job.start()
    status = command.wait()
    assert "Traceback" not in command.errors
    if status == 0:  # text may be empty; then the ledger says so
        assert not name.endswith((".parquet", ".arrow"))
    else:
        assert status == 3
        assert name in command.errors


def started_over(
    make_job: MakeJob, harness: ModuleType, sources: Path, **processing: Any
) -> tuple[Job, Command]:
    """A slow job over `sources` that has committed a shard and goes on."""
    tree = harness.read_tree(make_job("small").config)
    tree["source"] = {"paths": [str(sources / "*")]}
    tree["processing"] = {"batch_bytes": 20_000, **processing}
    tree["output"]["shard_size"] = 60_000
    job: Job = harness.Job(sources.parent, tree)
    command = job.start()
    command.until(lambda: len(job.journal()) >= 1, "a shard is committed")
    return job, command


@pytest.mark.parametrize(
    ("name", "workers"),
    [("z.jsonl", 0), ("z.jsonl", 2), ("z.jsonl.gz", 2), ("z.parquet", 2), ("z.feather", 0), ("z.feather", 2)],
)
def test_a_file_that_is_truncated_while_it_is_read(
    make_job: MakeJob, harness: ModuleType, sources: Path, name: str, workers: int
) -> None:
    (sources / "a.jsonl").unlink()
    path = sources / name
    if path.suffix == ".feather":
        texts = [json.loads(line)["text"] for line in thousand_lines().splitlines()] * 60
        pyarrow.feather.write_feather(
            pa.table({"text": texts}), str(path), compression="uncompressed", chunksize=500
        )
    elif path.suffix == ".parquet":
        texts = [json.loads(line)["text"] for line in thousand_lines().splitlines()] * 60
        pq.write_table(
            pa.table({"text": texts}), path, row_group_size=500, compression="none", use_dictionary=False
        )
    else:
        data = thousand_lines() * 60
        path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    job, command = started_over(make_job, harness, sources, workers=workers)
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)
    status = command.wait()
    command.check_gone()
    assert status == 3, command.errors
    assert name in command.errors.splitlines()[-1]
    assert not (job.output / "catalog.json").exists()
    job.check_interrupted()
    # Going on with the shorter file is refused: what is committed came of the longer one.
    assert f"changed: {name}" in job.run(status=4).errors
