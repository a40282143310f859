"""P1: equal identity fields and inputs give equal bytes, and they are those of a plain model of the job."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
import xxhash
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prep.catalog.catalog import Catalog
from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import MakeConfig

BOM = b"\xef\xbb\xbf"
KEPT = {"lang": "string", "n": "int64"}
EOS = 0
ORDERED: dict[str, Any] = {}
SHUFFLED = {"files": True, "documents": "block", "block_documents": 11, "block_bytes": 900, "seed": 7}
WORDS = (
    "the",
    "quick",
    "naïve",
    "東京",
    "\U0001d518",
    "e\u0301",
    "a\u2028b\u0085c",
    "12345",
    "\t",
    "<|endoftext|>",
)


class Row(NamedTuple):
    """A document as its shard holds it."""

    tokens: list[int]
    text_bytes: int
    source_file: int
    source_row: int
    id: str
    lang: str | None
    n: int | None

    @property
    def measure(self) -> int:
        """FORMAT.md, section 1: widths of fixed values, and 4 plus the bytes of strings and lists."""
        strings = sum(4 + len((value or "").encode()) for value in (self.id, self.lang))
        return 4 + 2 * len(self.tokens) + 4 + 4 + 8 + strings + 8


# ---- the corpus


def text_of(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1 + number * number % 17))


def record_of(number: int) -> dict[str, Any]:
    record: dict[str, Any] = {"text": text_of(number), "id": f"id-{number}", "lang": "de", "n": number}
    if number % 3 == 0:
        del record["id"]
    if number % 4 == 0:
        record["lang"] = None
    if number % 5 == 0:
        del record["n"]
    if number % 13 == 0:
        record["text"] = ""
    return record


def lines_of(numbers: Sequence[int], end: str) -> bytes:
    return "".join(
        json.dumps(record_of(number), ensure_ascii=number % 2 == 0) + end for number in numbers
    ).encode()


def table_of(numbers: Sequence[int]) -> pa.Table:
    fields = {"n": pa.int64(), "lang": pa.string(), "text": pa.string(), "id": pa.string()}
    records = [record_of(number) for number in numbers]
    return pa.table(
        {name: pa.array([row.get(name) for row in records], kind) for name, kind in fields.items()}
    )


def make_corpus(folder: Path) -> None:
    """Every format with what makes it hard: blank lines, CRLF, a BOM, long lines, members, frames, groups."""
    folder.mkdir()
    long = json.dumps({"text": "long " * 900, "id": 7, "n": -1}).encode()
    first = BOM + lines_of(range(20), "\n") + b"\n  \r\n" + long + b"\n" + lines_of(range(20, 35), "\r\n")
    (folder / "a.jsonl").write_bytes(first + b"\n" + lines_of([35], ""))
    (folder / "a2.jsonl").write_bytes(b"")
    data = lines_of(range(40, 80), "\n")
    half = len(data) // 2  # within a line
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    frames = (BOM + data[:half], data[half:])
    (folder / "c.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, frames)))
    pq.write_table(table_of(range(80, 120)), folder / "d.parquet", row_group_size=6)
    pq.write_table(table_of(range(120, 160)), folder / "d2.parquet")
    with (
        pa.OSFile(str(folder / "e.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table_of([]).schema) as writer,
    ):
        writer.write_table(table_of(range(160, 190)), max_chunksize=7)
    with (
        pa.OSFile(str(folder / "f.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table_of([]).schema) as writer,
    ):
        writer.write_table(table_of(range(190, 220)), max_chunksize=11)
    (folder / "g.json").write_text(json.dumps([record_of(i) for i in range(220, 240)]), encoding="utf-8")
    (folder / "h.txt").write_bytes(BOM + b"one document\r\nof two lines\n")


# ---- the model


def read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows and records of a file, with other libraries and in other ways than the job reads it."""
    if path.suffix == ".parquet":
        yield from enumerate(pq.read_table(path).to_pylist())
    elif path.suffix == ".arrow":
        data = path.read_bytes()
        reader = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
        yield from enumerate(reader(data).read_all().to_pylist())
    elif path.suffix == ".json":
        yield from enumerate(json.loads(path.read_bytes()))
    elif path.suffix == ".txt":
        yield 0, {"text": path.read_bytes().removeprefix(BOM).decode()}
    else:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            frames = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
            data = frames.read()
        for row, line in enumerate(data.removeprefix(BOM).split(b"\n")):
            if line.strip():
                yield row, json.loads(line)


def key(seed: int, block: int, position: int) -> int:
    return xxhash.xxh3_64_intdigest(struct.pack("<QqQ", seed, block, position))


def shuffled(items: Sequence[Any], seed: int, block: int) -> list[Any]:
    return [items[at] for at in sorted(range(len(items)), key=lambda at: key(seed, block, at))]


def blocks_of(rows: Sequence[Row], shuffle: dict[str, Any]) -> Iterator[list[Row]]:
    block: list[Row] = []
    for row in rows:
        size = sum(member.text_bytes for member in block) + row.text_bytes
        if block and (len(block) == shuffle["block_documents"] or size > shuffle["block_bytes"]):
            yield block
            block = []
        block.append(row)
    yield block


@cache
def encoder(path: Path) -> Callable[[str], list[int]]:
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


def model(
    folder: Path, tokenizer: Path, shuffle: dict[str, Any], shard_size: int
) -> tuple[list[list[Row]], list[int]]:
    """The rows of each shard, and the records of each file."""
    files = sorted(folder.iterdir())
    if shuffle.get("files"):
        files = shuffled(files, shuffle["seed"], -1)
    rows, counts = [], []
    for index, path in enumerate(files):
        records = list(read(path))
        counts.append(len(records))
        for number, record in records:
            if record["text"]:
                name = record.get("id")
                name = f"{path.name}#{number}" if name is None else str(name)
                ids = [*encoder(tokenizer)(record["text"]), EOS]
                size = len(record["text"].encode())
                rows.append(Row(ids, size, index, number, name, record.get("lang"), record.get("n")))
    if shuffle.get("documents") == "block":
        blocks = enumerate(blocks_of(rows, shuffle))
        rows = [row for number, block in blocks for row in shuffled(block, shuffle["seed"], number)]
    shards: list[list[Row]] = [[]]
    for row in rows:
        if shards[-1] and sum(member.measure for member in shards[-1]) + row.measure > shard_size:
            shards.append([])
        shards[-1].append(row)
    return shards, counts


# ---- the job


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("property") / "corpus"
    make_corpus(folder)
    return folder


class Runs:
    """Runs of the job over a corpus, each into a folder of its own."""

    def __init__(self, corpus: Path, make_config: MakeConfig, folder: Path) -> None:
        self._corpus = corpus
        self._make_config = make_config
        self._folder = folder
        self._count = 0

    def run(self, *, shard_size: int = 3_000, backend: str = "tokenizers", **processing: Any) -> Path:
        self._count += 1
        target = self._folder / f"run-{self._count}"
        config = self._make_config(
            self._corpus / "*",
            source={"id_field": "id", "keep_fields": KEPT},
            tokenizer={"backend": backend},
            processing=processing,
            output={"path": str(target), "shard_size": shard_size},
        )
        run_job(config)
        return target


@pytest.fixture
def runs(corpus: Path, make_config: MakeConfig, tmp_path: Path) -> Runs:
    return Runs(corpus, make_config, tmp_path)


def digests(folder: Path) -> dict[str, str]:
    """All that P1 is about: shards, tables, header."""
    paths = [*folder.glob("shards/*"), *folder.glob("*.parquet"), folder / "catalog.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def shards_of(folder: Path) -> list[list[Row]]:
    tables = []
    for path in sorted((folder / "shards").iterdir()):
        with pa.OSFile(str(path), "rb") as source:
            tables.append(pa.ipc.open_file(source).read_all())
    return [[Row(*(row[name] for name in Row._fields)) for row in table.to_pylist()] for table in tables]


def check_model(
    folder: Path, corpus: Path, tokenizer: Path, shuffle: dict[str, Any], shard_size: int
) -> None:
    """Documents, their order and rows, where shards end, and that nothing is lost or counted twice (P2)."""
    expected, counts = model(corpus, tokenizer, shuffle, shard_size)
    found = shards_of(folder)
    assert [row for shard in found for row in shard] == [row for shard in expected for row in shard]
    assert [len(shard) for shard in found] == [len(shard) for shard in expected]
    catalog = Catalog.open(folder)
    ledger, written = catalog.header["ledger"], sum(map(len, expected))
    assert ledger["read"] == sum(counts) == written + sum(ledger["rejected"].values())
    assert ledger["rejected"]["empty"] == sum(counts) - written > 0
    assert catalog.sources().column("records_read").to_pylist() == counts
    assert sum(catalog.sources().column("records_rejected").to_pylist()) == sum(counts) - written


shuffles = st.one_of(
    st.just(ORDERED),
    st.fixed_dictionaries(
        {
            "files": st.booleans(),
            "documents": st.just("block"),
            "block_documents": st.integers(1, 60),
            "block_bytes": st.integers(1, 4_000),
            "seed": st.integers(0, 2**63 - 1),
        }
    ),
)


@given(
    batches=st.tuples(st.integers(60, 700), st.integers(1, 20_000)),
    shard_size=st.integers(2_500, 30_000),
    shuffle=shuffles,
)
@example(batches=(300, 64), shard_size=1_500, shuffle=SHUFFLED)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_p1_any_block_size_gives_the_bytes_of_the_model(
    *,
    runs: Runs,
    corpus: Path,
    tokenizer_json: Path,
    batches: tuple[int, int],
    shard_size: int,
    shuffle: dict[str, Any],
) -> None:
    first, second = (
        runs.run(shard_size=shard_size, batch_bytes=size, shuffle=shuffle, backend=backend)
        for size, backend in zip(batches, ("tokenizers", "fastokens"), strict=True)
    )
    assert digests(first) == digests(second)
    check_model(first, corpus, tokenizer_json, shuffle, shard_size)


@pytest.mark.parametrize("shuffle", [ORDERED, SHUFFLED], ids=["ordered", "shuffled"])
def test_p1_any_number_of_processes_gives_the_same_bytes(
    runs: Runs, corpus: Path, tokenizer_json: Path, shuffle: dict[str, Any]
) -> None:
    alone = runs.run(shuffle=shuffle)
    check_model(alone, corpus, tokenizer_json, shuffle, 3_000)
    for workers, readers, batch_bytes, backend in [
        (1, 1, 300, "tokenizers"),
        (2, 3, 500, "fastokens"),
        (2, 1, 100_000, "auto"),
        (5, 3, 1_500, "tokenizers"),
    ]:
        folder = runs.run(
            workers=workers, readers=readers, batch_bytes=batch_bytes, backend=backend, shuffle=shuffle
        )
        assert digests(folder) == digests(alone)


def test_q36_order_follows_the_input_not_the_timing(make_config: MakeConfig, tmp_path: Path) -> None:
    """Q36: three files that take less and less time; 1, 2 and 8 workers."""
    for number, size in enumerate((60_000, 6_000, 60)):
        lines = [json.dumps({"text": f"{number} {i} " + "the quick fox " * (size // 14)}) for i in range(6)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    results = []
    for workers in (1, 2, 8):
        config = make_config(
            tmp_path / "*.jsonl",
            tokenizer={"backend": "tokenizers"},
            processing={"workers": workers, "batch_bytes": 10_000},
            output={"path": str(tmp_path / f"out-{workers}"), "shard_size": 40_000},
        )
        run_job(config)
        results.append(digests(tmp_path / f"out-{workers}"))
    assert results[0] == results[1] == results[2]
    places = Catalog.open(tmp_path / "out-1").shards(["first_file", "first_row"]).to_pylist()
    assert places == sorted(places, key=lambda place: (place["first_file"], place["first_row"]))
    assert len(places) > 3
