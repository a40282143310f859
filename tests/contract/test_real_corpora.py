"""On real corpora and real tokenizers, ids are those of the reference library, document by document."""

from __future__ import annotations

import gzip
import io
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import tokenizers
import zstandard

from prep.catalog.catalog import Catalog
from prep.catalog.columns import flat_values
from prep.catalog.schema import offsets_of
from prep.catalog.shard import ShardFile
from prep.config import validate
from prep.job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FAST = ("gpt2", "cl100k", "deepseek")
EOS = {
    "gpt2": "<|endoftext|>",
    "cl100k": "<|endoftext|>",
    "deepseek": "<｜end▁of▁sentence｜>",  # noqa: RUF001 - as it is spelled
    "minilm": "[SEP]",
    "anthropic": "<EOT>",
}
KINDS = ("prose", "multi", "code", "short")
CASES = [(name, kind, "fastokens") for name in FAST for kind in KINDS]
CASES += [("gpt2", kind, "tokenizers") for kind in KINDS]
CASES += [(name, "short", "tokenizers") for name in ("cl100k", "deepseek")]
CASES += [(name, kind, "auto") for name in ("minilm", "anthropic") for kind in ("multi", "short")]

Documents = list[tuple[str, list[int]]]


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The corpus read with other means than ours."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
        elif path.suffix == ".gz":
            with gzip.open(path) as stream:
                yield from map(json.loads, stream)
        else:
            with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
                yield from map(json.loads, io.BufferedReader(stream))


def documents(folder: Path) -> Iterator[tuple[str, list[int]]]:
    catalog = Catalog.open(folder)
    for entry in catalog.shards(["path"]).to_pylist():
        with ShardFile(catalog.file(entry["path"])) as shard:
            for batch in shard.batches():
                ids, offsets = (
                    flat_values(batch.column("tokens")).tolist(),
                    offsets_of(batch.column("tokens")),
                )
                bounds, names = (offsets - offsets[0]).tolist(), batch.column("id").to_pylist()
                for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
                    yield name, ids[start:stop]


@pytest.fixture(scope="module")
def reference(test_data: Path) -> Callable[[str, str], Documents]:
    """Ids by the reference library, of each corpus and tokenizer once."""

    @cache
    def encode(name: str, kind: str) -> Documents:
        tokenizer = tokenizers.Tokenizer.from_file(str(test_data / "tokenizers" / f"{name}.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        eos = tokenizer.token_to_id(EOS[name])
        corpus = list(rows(test_data / "corpus" / kind))
        found = tokenizer.encode_batch([row["text"] for row in corpus], add_special_tokens=False)
        return [(row["id"], [*encoding.ids, eos]) for row, encoding in zip(corpus, found, strict=True)]

    return encode


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_ids_are_those_of_the_reference(
    test_data: Path, tmp_path: Path, reference: Callable[[str, str], Documents], case: tuple[str, str, str]
) -> None:
    name, kind, backend = case
    config = validate(
        {
            "name": "conformance",
            "source": {"paths": str(test_data / "corpus" / kind / "*"), "id_field": "id"},
            "tokenizer": {
                "path": str(test_data / "tokenizers" / f"{name}.json"),
                "backend": backend,
                "eos_token": EOS[name],
                "add_bos": False,
            },
            "processing": {"workers": 2},
            "output": {"path": str(tmp_path / "out"), "shard_size": "3MB"},
        }
    )
    summary = run_job(config)
    assert summary.backend.startswith("tokenizers" if backend == "auto" else backend)
    assert list(documents(tmp_path / "out")) == reference(name, kind)
