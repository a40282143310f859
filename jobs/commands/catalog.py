"""`tokenloom catalog`: show and verify what a job wrote."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

BAR_WIDTH = 40
SHOWN_SHARDS = 20


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "catalog", help="show or verify a catalog", description="Show or verify a catalog."
    )
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    show = actions.add_parser("show", help="totals, tokens per byte, document lengths, shards")
    show.add_argument("path", help="the catalog's folder")
    show.add_argument("--json", action="store_true", help="print everything as JSON")
    show.set_defaults(run=run_show)
    verify = actions.add_parser("verify", help="compare every shard with the catalog; lists every finding")
    verify.add_argument("path", help="the catalog's folder")
    verify.add_argument("--json", action="store_true", help="print the report as JSON")
    verify.set_defaults(run=run_verify)


def run_show(options: argparse.Namespace) -> int:
    from prep.catalog.catalog import Catalog

    catalog = Catalog.open(options.path)
    if options.json:
        print(json.dumps({"header": catalog.header, "shards": catalog.shards().to_pylist()}, indent=1))
        return 0
    shards = catalog.shards(["path", "num_documents", "num_tokens", "text_bytes", "file_bytes"])
    shown = _shard_table(shards.slice(0, SHOWN_SHARDS).to_pylist(), shards.num_rows)
    print("\n".join([*_totals(catalog.header), "", *_histogram(catalog.length_histogram()), "", *shown]))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from prep.catalog.catalog import Catalog
    from prep.catalog.errors import IntegrityError
    from prep.catalog.verify import verify_catalog

    catalog = Catalog.open(options.path)
    total = catalog.header["totals"]["file_bytes"]
    with tqdm(total=total, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
        report = verify_catalog(catalog, bar.update)
    if options.json:
        findings = [finding._asdict() for finding in report.findings]
        print(
            json.dumps(
                {
                    "ok": report.ok,
                    "shards": report.shards,
                    "documents": report.documents,
                    "tokens": report.tokens,
                    "findings": findings,
                },
                indent=1,
            )
        )
    else:
        for finding in report.findings:
            print(f"{finding.where}: {finding.what}")
        result = "verified" if report.ok else f"{len(report.findings)} findings"
        print(
            f"{catalog.name}: {report.shards:,} shards, {report.documents:,} documents, "
            f"{report.tokens:,} tokens: {result}"
        )
    return 0 if report.ok else IntegrityError.exit_code


def _totals(header: Mapping[str, Any]) -> list[str]:
    totals, tokenizer, ledger = header["totals"], header["tokenizer"], header["ledger"]
    documents, tokens = totals["num_documents"], totals["num_tokens"]
    density = tokens / max(1, totals["text_bytes"])
    rejected = {reason: count for reason, count in ledger["rejected"].items() if count}
    return [
        f"{header['name']}",
        f"  documents   {documents:,}",
        f"  tokens      {tokens:,} ({header['token_dtype']}), {tokens / max(1, documents):,.1f} a document",
        f"  text        {totals['text_bytes']:,} bytes, {density:.3f} tokens a byte",
        f"  shards      {totals['num_shards']:,} with {totals['file_bytes']:,} bytes",
        f"  sources     {totals['num_sources']:,} files",
        (
            f"  tokenizer   {tokenizer['fingerprint']}, {tokenizer['vocab_size']:,} ids, "
            f"BOS {tokenizer['bos_id']}, EOS {tokenizer['eos_id']}"
        ),
        f"  ledger      read {ledger['read']:,} = written {ledger['written']:,}"
        + "".join(f" + {reason} {count:,}" for reason, count in rejected.items()),
    ]


def _histogram(bins: Sequence[int]) -> list[str]:
    """Document lengths in powers of two, drawn."""
    filled = [number for number, count in enumerate(bins) if count]
    lines = ["tokens a document"]
    for number in range(min(filled, default=0), max(filled, default=-1) + 1):
        low, high = (2 ** (number - 1), 2**number - 1) if number else (0, 0)
        bar = "█" * round(BAR_WIDTH * bins[number] / max(bins))
        lines.append(f"  {low:>12,} to {high:>12,}  {bins[number]:>13,}  {bar}")
    return lines


def _shard_table(shards: Sequence[Mapping[str, Any]], total: int) -> list[str]:
    lines = [f"{'shard':<40} {'documents':>13} {'tokens':>16} {'text bytes':>16} {'file bytes':>16}"]
    lines += [
        f"{shard['path']:<40} {shard['num_documents']:>13,} {shard['num_tokens']:>16,} "
        f"{shard['text_bytes']:>16,} {shard['file_bytes']:>16,}"
        for shard in shards
    ]
    if total > len(shards):
        lines.append(f"... and {total - len(shards):,} more (--json lists all)")
    return lines
