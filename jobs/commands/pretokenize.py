"""`tokenloom pretokenize`: run a job, continue it, or find that it is finished."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from prep.config import JobConfig
    from prep.finish import Summary

SHOWN_FILES = 20


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "pretokenize",
        help="turn text into token shards and a catalog; run it again to continue",
        description="Turn the text of a configuration's sources into token shards and a catalog. "
        "Interrupted at any moment, the same command continues, and the result has the same bytes.",
    )
    parser.add_argument("config", help="the job's YAML file")
    parser.add_argument("--set", dest="overrides", metavar="A.B=VALUE", action="append", default=[],
                        help="override a field of the configuration; may be given several times")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, write nothing")
    parser.add_argument("--restart", action="store_true",
                        help="remove what the output folder holds of an earlier job, and begin anew")
    parser.add_argument("--verify", action="store_true",
                        help="on resume, check the checksum of every committed shard, not only the last")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on standard output")
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and the result")
    parser.set_defaults(run=run, interrupted="What is committed stays; the same command continues.")


def run(options: argparse.Namespace) -> int:
    from prep.config import load_config  # noqa: PLC0415

    config = load_config(options.config, options.overrides)
    if options.dry_run:
        return _dry_run(config, as_json=options.json)
    from jobs.progress import ProgressDisplay  # noqa: PLC0415
    from prep.job import run_job  # noqa: PLC0415

    with ProgressDisplay(quiet=options.quiet) as display:
        summary = run_job(
            config, restart=options.restart, verify_all=options.verify, on_progress=display.show
        )
    if options.json:
        print(json.dumps(summary.to_dict(), indent=1))
    else:
        _print_summary(summary)
    return 0


def _dry_run(config: JobConfig, *, as_json: bool) -> int:
    from prep.describe import describe_job  # noqa: PLC0415

    plan = describe_job(config)
    if as_json:
        print(json.dumps(plan, indent=1))
        return 0
    import yaml  # noqa: PLC0415

    files = plan["sources"]
    print(yaml.safe_dump(plan["config"], sort_keys=False).rstrip())
    print(f"\nsources: {len(files):,} files, {plan['source_bytes']:,} bytes")
    for file in files[:SHOWN_FILES]:
        print(f"  {file['size']:>15,}  {file['format']:<8} {file['name']}")
    if len(files) > SHOWN_FILES:
        print(f"  ... and {len(files) - SHOWN_FILES:,} more")
    print("\nstages:")
    for stage, what in plan["stages"].items():
        print(f"  {stage:<11} {what}")
    print(f"\noutput: {plan['output']}")
    return 0


def _print_summary(summary: Summary) -> None:
    rate = summary.tokens / summary.seconds if summary.seconds else 0
    print(f"{summary.name}: " + ("done" if summary.worked else "finished before, nothing to do"))
    rows = [
        ("documents", f"{summary.documents:,}"),
        ("tokens", f"{summary.tokens:,} ({summary.token_dtype})"),
        ("text", f"{summary.text_bytes:,} bytes, {summary.tokens / max(1, summary.text_bytes):.3f} tokens a byte"),
        ("shards", f"{summary.shards:,} with {summary.file_bytes:,} bytes"),
        ("sources", f"{summary.sources:,} files"),
    ]
    rejected = {reason: count for reason, count in summary.ledger["rejected"].items() if count}
    if rejected:
        rows.append(("left out", ", ".join(f"{reason} {count:,}" for reason, count in rejected.items())))
    rows += [
        (name.replace("_", " "), f"{summary.ledger[name]:,} documents")
        for name in ("control_text", "surrogates_replaced", "invalid_utf8_replaced")
        if summary.ledger[name]
    ]
    if summary.worked:
        rows.append(("time", f"{summary.seconds:.1f} s, {rate:,.0f} tokens/s"))
        rows.append(("backend", summary.backend))
    for name, value in rows:
        print(f"  {name:<22} {value}")
    print(f"next:\n  tokenloom catalog show {summary.path}\n  tokenloom catalog verify {summary.path}")
    print(f"  tokenloom inspect {summary.path} --doc 0 --decode")
    sys.stdout.flush()
