"""Files written once and kept: they can always be read, and the same job writes them again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.cli import main
from prep.catalog.catalog import Catalog
from prep.catalog.fingerprint import fingerprint
from prep.catalog.verify import verify_catalog
from prep.config import load_config
from prep.finish import stored_definition
from prep.index import build_catalog
from prep.job import run_job
from prep.journal import Journal
from prep.recount import verify_raw
from prep.tokenizers.probes import probe_ids, probe_strings
from prep.tokenizers.reference import ReferenceEncoder
from runtime.debug import DatasetInspector
from runtime.io import Dataset

DATA = Path(__file__).parent / "data"
JOBS = {"plain": "golden", "shuffled": "shuffled"}
RECORDED = json.loads((DATA / "recorded.json").read_bytes())
same_pyarrow = pytest.mark.skipif(
    pa.__version__.partition(".")[0] != RECORDED["pyarrow"].partition(".")[0],
    reason=f"bytes are pinned for one major version of pyarrow, recorded with {RECORDED['pyarrow']}",
)
each_job = pytest.mark.parametrize("job", JOBS)


def overrides(out: Path) -> list[str]:
    return [
        f"source.paths={json.dumps([str(DATA / 'in' / '*.jsonl')])}",
        f"tokenizer.path={json.dumps(str(DATA / 'tokenizer.json'))}",
        f"output.path={json.dumps(str(out))}",
    ]


def run(job: str, out: Path, *more: str) -> Path:
    run_job(load_config(DATA / f"{job}.yaml", [*overrides(out), *more]))
    return out


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All documents, read with pyarrow alone."""
    rows = []
    for path in Catalog.open(folder).shards(["path"]).column("path").to_pylist():
        with pa.OSFile(str(folder / path)) as source:
            rows += pa.ipc.open_file(source).read_all().to_pylist()
    return rows


@each_job
def test_a_catalog_of_an_earlier_version_verifies(job: str) -> None:
    report = verify_catalog(Catalog.open(DATA / job))
    assert report.findings == []
    assert (report.shards, report.documents) == {"plain": (2, 47), "shuffled": (3, 46)}[job]


def test_its_documents_are_found_and_read() -> None:
    catalog = Catalog.open(DATA / "plain")
    found = catalog.document(*catalog.locate(3))
    ids = found.pop("tokens").tolist()
    assert found == {
        "shard": "shards/golden-00000-000000.arrow",
        "row": 3,
        "source": "a.jsonl",
        "text_bytes": len("naïve café 東京 \U0001f98a".encode()),
        "source_file": 0,
        "source_row": 3,
        "id": "doc-3",
        "language": "en",
        "score": 0.75,
        "good": False,
        "count": 3,
    }
    encoder = ReferenceEncoder(stored_definition(DATA / "plain").encoding_json)
    assert encoder.decode(ids) == "naïve café 東京 \U0001f98a<|endoftext|>"


@each_job
def test_the_command_line_reads_it(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["catalog", "show"], ["catalog", "verify"], ["inspect", "--doc", "0", "--decode"]):
        assert main([*arguments, str(DATA / job)]) == 0
        assert capsys.readouterr().out


@each_job
def test_a_journal_of_an_earlier_version_is_understood(job: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / job, tmp_path / job))
    entries = Journal(folder, JOBS[job]).recover(verify_all=True)
    assert [entry.row for entry in entries] == Catalog.open(folder).shards().to_pylist()
    assert entries[-1].position.file == 2
    ledger = Catalog.open(folder).header["ledger"]
    assert sum(entry.ledger["written"] for entry in entries) == ledger["written"]


def test_an_unfinished_job_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    out = run("plain", tmp_path / "out")
    for path in (out / "catalog.json", out / "shards.parquet", out / "sources.parquet"):
        path.unlink()
    for number in (0, 1):
        name = f"_job/journal/00000-{number:06}.json"
        shutil.copy(DATA / "plain" / name, out / name)
    shutil.copytree(DATA / "plain" / "shards", out / "shards", dirs_exist_ok=True)
    summary = run_job(load_config(DATA / "plain.yaml", overrides(out)))
    assert summary.resumed_shards == 2
    assert rows_of(out) == rows_of(DATA / "plain")


@each_job
def test_the_same_job_gives_the_same_documents_in_the_same_shards(job: str, tmp_path: Path) -> None:
    out = run(job, tmp_path / "out")
    assert rows_of(out) == rows_of(DATA / job)
    columns = [
        "path",
        "num_documents",
        "num_tokens",
        "text_bytes",
        "first_file",
        "first_row",
        "length_histogram",
    ]
    assert (
        Catalog.open(out).shards(columns).to_pylist() == Catalog.open(DATA / job).shards(columns).to_pylist()
    )


@each_job
def test_identity_and_fingerprints_are_as_they_were(job: str, tmp_path: Path) -> None:
    old, new = (Catalog.open(folder).header for folder in (DATA / job, run(job, tmp_path / "out")))
    names = ("identity", "identity_fingerprint", "tokenizer", "token_dtype", "ledger")
    assert {name: new[name] for name in names} == {name: old[name] for name in names}
    assert old["identity_fingerprint"] == fingerprint(old["identity"])


@same_pyarrow
@pytest.mark.parametrize(
    "more", [(), ("processing.workers=2", "tokenizer.backend=auto", "processing.batch_bytes=500")]
)
@each_job
def test_the_same_job_gives_the_same_bytes(job: str, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Property P1."""
    out = run(job, tmp_path / "out", *more)
    assert sorted(path.name for path in (out / "shards").iterdir()) == sorted(
        path.name for path in (DATA / job / "shards").iterdir()
    )
    names = ["shards.parquet", "sources.parquet", "tokenizer.json"]
    names += [f"shards/{path.name}" for path in (DATA / job / "shards").iterdir()]
    changed = [name for name in names if (out / name).read_bytes() != (DATA / job / name).read_bytes()]
    assert changed == []


@each_job
def test_shards_are_read_without_this_project(job: str) -> None:
    polars = pytest.importorskip("polars")
    for path in sorted((DATA / job / "shards").iterdir()):
        with pa.OSFile(str(path)) as source:
            expected = pa.ipc.open_file(source).read_all()
        frame = polars.read_ipc(path)
        assert frame["tokens"].to_list() == expected.column("tokens").to_pylist()
        assert frame["source_row"].to_list() == expected.column("source_row").to_pylist()


@each_job
def test_shards_are_queried_without_this_project(job: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed; no extra needs it")
    paths = sorted((DATA / job / "shards").iterdir())
    shard = pa.concat_tables(pa.ipc.open_file(pa.OSFile(str(path))).read_all() for path in paths)
    with duckdb.connect() as connection:
        connection.register("shard", shard)
        found = connection.execute("select count(*), sum(len(tokens)), sum(text_bytes) from shard").fetchone()
    totals = Catalog.open(DATA / job).header["totals"]
    assert found == (totals["num_documents"], totals["num_tokens"], totals["text_bytes"])


@each_job
def test_shards_are_a_dataset_of_the_hub_library(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")
    files = [str(path) for path in sorted((DATA / job / "shards").iterdir())]
    loaded = datasets.load_dataset(
        "arrow", data_files=files, cache_dir=str(tmp_path / "cache"), split="train"
    )
    totals = Catalog.open(DATA / job).header["totals"]
    assert len(loaded) == totals["num_documents"]
    assert sum(len(document["tokens"]) for document in loaded) == totals["num_tokens"]


def test_a_shard_says_what_it_is() -> None:
    header = Catalog.open(DATA / "plain").header
    for number in (0, 1):
        with pa.OSFile(str(DATA / "plain" / "shards" / f"golden-00000-{number:06}.arrow")) as source:
            metadata = pa.ipc.open_file(source).schema.metadata
        assert metadata == {
            b"tokenloom.format_version": b"1",
            b"tokenloom.tokenizer": header["tokenizer"]["fingerprint"].encode(),
            b"tokenloom.job": header["identity_fingerprint"].encode(),
            b"tokenloom.task": b"0",
            b"tokenloom.index": str(number).encode(),
        }


def test_the_tokenizer_gives_the_ids_that_its_fingerprint_was_made_of() -> None:
    """Case Q34: fails where a version of the library gives other ids to a probe."""
    definition = stored_definition(DATA / "plain")
    ids = probe_ids(ReferenceEncoder(definition.encoding_json), probe_strings(list(definition.control_ids)))
    assert (
        fingerprint([definition.canonical.decode(), ids])
        == Catalog.open(DATA / "plain").header["tokenizer"]["fingerprint"]
    )


def test_a_catalog_of_raw_files_of_an_earlier_version_verifies_and_is_read() -> None:
    catalog = Catalog.open(DATA / "raw")
    assert verify_raw(catalog).findings == []
    dataset = Dataset.from_path("raw", str(DATA / "raw"))
    assert dataset.fingerprint == "d5ef6f52db23613586a4ef68564de57a"
    with DatasetInspector(dataset) as inspector:
        assert inspector.read_many(0, [1, 3]) == [{"text": "naïve \n 東京", "n": 2}, {"text": ""}]
        assert inspector.read(1, 1) == {"text": "\U0001f98a"}


def test_the_offsets_of_rows_are_where_they_were() -> None:
    offsets = [
        np.fromfile(DATA / "raw" / "index" / f"{name}.offsets", "<u8").tolist()
        for name in ("a.jsonl", "more/b.jsonl.gz")
    ]
    assert offsets == [[3, 24, 61, 70, 82], [0, 20, 45]]


@same_pyarrow
def test_a_catalog_of_raw_files_has_the_recorded_bytes(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "raw", tmp_path / "raw"))
    build_catalog(folder, name="golden", rebuild=True)
    for path in (DATA / "raw").rglob("*"):
        if path.is_file() and path.name != "catalog.json":  # it says which version wrote it
            assert (folder / path.relative_to(DATA / "raw")).read_bytes() == path.read_bytes(), path
