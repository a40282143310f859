"""Looking at samples without a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prep.catalog.catalog import Catalog
from prep.catalog.errors import InputError, IntegrityError
from runtime.debug import DatasetInspector
from runtime.debug.inspector import KEPT_SHARDS
from runtime.io import Dataset

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sample_of_a_token_shard_has_tokens_and_provenance(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    with DatasetInspector(Dataset.from_path("x", str(catalog_folder))) as inspector:
        for shard in range(catalog.header["totals"]["num_shards"]):
            sample, expected = inspector.read(shard, 1), catalog.document(shard, 1)
            assert sample.pop("tokens").tolist() == expected.pop("tokens").tolist()
            assert sample == {name: expected[name] for name in sample}
            assert sample["source"] == expected["source"]


def test_samples_come_in_the_order_asked_for(catalog_folder: Path) -> None:
    with DatasetInspector(Dataset.from_path("x", str(catalog_folder))) as inspector:
        found = inspector.read_many(0, [3, 1, 3])
        assert [sample["source_row"] for sample in found] == [
            inspector.read(0, index)["source_row"] for index in (3, 1, 3)
        ]


@pytest.mark.parametrize(
    ("shard", "index", "message"), [(99, 0, "no shard has the id 99"), (0, 10**6, "row 1000000")]
)
def test_what_is_not_there_is_named(catalog_folder: Path, shard: int, index: int, message: str) -> None:
    with (
        DatasetInspector(Dataset.from_path("x", str(catalog_folder))) as inspector,
        pytest.raises(InputError, match=message),
    ):
        inspector.read(shard, index)


def test_a_shard_of_another_size_is_refused(catalog_folder: Path) -> None:
    catalog = Catalog.open(catalog_folder)
    path = catalog.file(catalog.shards(["path"]).column("path")[0].as_py())
    path.write_bytes(path.read_bytes() + b"more")
    with (
        DatasetInspector(Dataset.from_path("x", str(catalog_folder))) as inspector,
        pytest.raises(IntegrityError, match=r"expected .* bytes as the catalog says"),
    ):
        inspector.read(0, 0)


def test_few_shards_are_open_at_a_time() -> None:
    dataset = Dataset.from_dict("m", [[{"n": number}] for number in range(20)])
    with DatasetInspector(dataset) as inspector:
        assert [inspector.read(shard, 0)["n"] for shard in range(20)] == list(range(20))
        assert len(inspector._open) == KEPT_SHARDS
