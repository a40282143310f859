"""`tokenloom inspect`: look at one document with its provenance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from prep.catalog.catalog import Catalog

SHOWN_IDS = 64
SHOWN_TEXT = 2000


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "inspect",
        help="look at one document with its provenance",
        description="Look at one document of a catalog with its provenance.",
    )
    parser.add_argument("path", help="the catalog's folder")
    parser.add_argument("--doc", type=int, metavar="N", help="document N of the whole catalog, from 0")
    parser.add_argument("--shard", type=int, metavar="I", help="shard I of the catalog, from 0")
    parser.add_argument("--row", type=int, metavar="J", help="row J of that shard, from 0")
    parser.add_argument("--decode", action="store_true", help="also print the text of the ids")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, all ids included")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from prep.catalog.catalog import Catalog
    from prep.catalog.errors import ConfigError

    given = [name for name in ("doc", "shard", "row") if getattr(options, name) is not None]
    if given not in (["doc"], ["shard", "row"]):
        raise ConfigError("give either --doc N, or --shard I and --row J")
    catalog = Catalog.open(options.path)
    shard, row = (options.shard, options.row) if "shard" in given else catalog.locate(options.doc)
    if catalog.is_raw:
        return _run_raw(options, catalog, shard, row)
    document = catalog.document(shard, row)
    if options.decode:
        document["text"] = _decode(catalog.folder, document["tokens"].tolist())
    if options.json:
        print(json.dumps({**document, "tokens": document["tokens"].tolist()}, indent=1, default=str))
    else:
        _print(document)
    return 0


def _run_raw(options: argparse.Namespace, catalog: Catalog, shard: int, row: int) -> int:
    """A row of raw data, as it lies."""
    from prep.catalog.errors import ConfigError
    from runtime.debug import DatasetInspector
    from runtime.io import Dataset

    if options.decode:
        raise ConfigError("--decode: rows of raw data have no ids to decode")
    dataset = Dataset.from_path(catalog.name, options.path)
    with DatasetInspector(dataset) as inspector:
        document = inspector.read(shard, row)
    if options.json:
        print(json.dumps(document, indent=1, default=str, ensure_ascii=False))
        return 0
    path = catalog.shards(["path"]).column("path")[shard].as_py()
    print(f"{'shard':<14} {path}\n{'row':<14} {row}")
    for name, value in document.items():
        shown = str(value)
        print(f"{name:<14} {shown[:SHOWN_TEXT]}" + (" ..." if len(shown) > SHOWN_TEXT else ""))
    return 0


def _decode(folder: Any, ids: list[int]) -> str:
    from prep.finish import stored_definition
    from prep.tokenizers.reference import ReferenceEncoder

    return ReferenceEncoder(stored_definition(folder).encoding_json).decode(ids)


def _print(document: dict[str, Any]) -> None:
    ids = document["tokens"].tolist()
    for name, value in document.items():
        if name not in ("tokens", "text"):
            print(f"{name:<14} {value}")
    print(f"{'num_tokens':<14} {len(ids):,}")
    print(f"{'tokens':<14} {' '.join(map(str, ids[:SHOWN_IDS]))}" + (" ..." if len(ids) > SHOWN_IDS else ""))
    if "text" in document:
        text = document["text"]
        print(
            f"\n{text[:SHOWN_TEXT]}" + (f"\n... ({len(text):,} characters)" if len(text) > SHOWN_TEXT else "")
        )
