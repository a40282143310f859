"""`tokenloom catalog`: build one of raw files, show it, verify it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

BAR_WIDTH = 40
SHOWN_SHARDS = 20


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "catalog",
        help="build a catalog of raw files; show or verify any",
        description="Build a catalog of raw files; show or verify any catalog.",
    )
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    build = actions.add_parser(
        "build", help="describe a folder of JSONL, Parquet or Arrow files by a catalog in it"
    )
    build.add_argument("path", help="the folder of the raw files")
    build.add_argument("--name", help="the dataset's name; default: the catalog's, the folder's")
    build.add_argument(
        "--format",
        default="auto",
        choices=["auto", "jsonl", "parquet", "arrow"],
        help="what the files are; auto: by suffix",
    )
    build.add_argument(
        "--text-field",
        default="text",
        metavar="FIELD",
        help="the field whose bytes are counted; default: text",
    )
    build.add_argument(
        "--workers",
        type=_workers,
        default="auto",
        metavar="N",
        help="processes; auto: by processors and work",
    )
    build.add_argument("--rebuild", action="store_true", help="make it anew, whatever catalog is there")
    build.add_argument("--json", action="store_true", help="print the summary as JSON")
    build.add_argument("--quiet", action="store_true", help="print nothing but warnings and the result")
    build.set_defaults(run=run_build, interrupted="The same command begins anew.")
    show = actions.add_parser("show", help="totals, tokens per byte, document lengths, shards")
    show.add_argument("path", help="the catalog's folder")
    show.add_argument("--json", action="store_true", help="print everything as JSON")
    show.set_defaults(run=run_show)
    verify = actions.add_parser("verify", help="compare every shard with the catalog; lists every finding")
    verify.add_argument("path", help="the catalog's folder")
    verify.add_argument("--json", action="store_true", help="print the report as JSON")
    verify.set_defaults(run=run_verify)


def _workers(value: str) -> int | str:
    return value if value == "auto" else int(value)


def run_build(options: argparse.Namespace) -> int:
    from jobs.progress import BuildDisplay
    from prep.index import build_catalog

    with BuildDisplay(quiet=options.quiet) as display:
        summary = build_catalog(
            options.path,
            name=options.name,
            fmt=options.format,
            text_field=options.text_field,
            workers=options.workers,
            rebuild=options.rebuild,
            on_progress=display.show,
        )
    if options.json:
        print(json.dumps(asdict(summary), indent=1))
        return 0
    state = "done" if summary.worked else "made before, and no file has another size since; nothing to do"
    text = "unknown: no row has the field" if summary.text_bytes is None else f"{summary.text_bytes:,} bytes"
    lacking = f", {summary.without_text:,} rows without" if summary.without_text else ""
    print(f"{summary.name}: {state}")
    print(f"  rows    {summary.rows:,}")
    print(f"  text    {text} ({summary.text_field}{lacking})")
    print(f"  files   {summary.files:,} with {summary.file_bytes:,} bytes ({summary.format})")
    print(f"next:\n  tokenloom catalog show {summary.path}\n  tokenloom catalog verify {summary.path}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    from prep.catalog.catalog import Catalog

    catalog = Catalog.open(options.path)
    if options.json:
        print(json.dumps({"header": catalog.header, "shards": catalog.shards().to_pylist()}, indent=1))
        return 0
    shards = catalog.shards(["path", "num_documents", "num_tokens", "text_bytes", "file_bytes"])
    shown = _shard_table(shards.slice(0, SHOWN_SHARDS).to_pylist(), shards.num_rows)
    if catalog.is_raw:
        print("\n".join([*_raw_totals(catalog.header), "", *shown]))
    else:
        print("\n".join([*_totals(catalog.header), "", *_histogram(catalog.length_histogram()), "", *shown]))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from prep.catalog.catalog import Catalog
    from prep.catalog.errors import IntegrityError
    from prep.catalog.verify import verify_catalog
    from prep.recount import verify_raw

    catalog = Catalog.open(options.path)
    total = catalog.header["totals"]["file_bytes"]
    verify = verify_raw if catalog.is_raw else verify_catalog
    with tqdm(total=total, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
        report = verify(catalog, bar.update)
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
        tokens = "" if catalog.is_raw else f", {report.tokens:,} tokens"
        print(f"{catalog.name}: {report.shards:,} shards, {report.documents:,} documents{tokens}: {result}")
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


def _raw_totals(header: Mapping[str, Any]) -> list[str]:
    totals, fmt, text_field = header["totals"], header["data_format"], header["identity"]["text_field"]
    lacking = header["ledger"]["without_text"]
    return [
        f"{header['name']}",
        f"  rows        {totals['num_documents']:,}",
        f"  text        {_number(totals['text_bytes'])} bytes in the field {text_field!r}"
        + (f", which {lacking:,} rows lack" if lacking else ""),
        f"  files       {totals['num_shards']:,} with {totals['file_bytes']:,} bytes ({fmt})",
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


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
        f"{shard['path']:<40} {shard['num_documents']:>13,} {_number(shard['num_tokens']):>16} "
        f"{_number(shard['text_bytes']):>16} {shard['file_bytes']:>16,}"
        for shard in shards
    ]
    if total > len(shards):
        lines.append(f"... and {total - len(shards):,} more (--json lists all)")
    return lines
