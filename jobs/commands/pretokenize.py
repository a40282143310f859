"""`tokenloom pretokenize`: run a job, continue it, or find that it is finished."""

from __future__ import annotations

import json
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
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="A.B=VALUE",
        action="append",
        default=[],
        help="override a field of the configuration; may be given several times",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, write nothing")
    parser.add_argument(
        "--restart",
        action="store_true",
        help="remove what the output folder holds of an earlier job, and begin anew",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check the checksum of every shard that is committed, not only the last",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on standard output")
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and the result")
    parser.set_defaults(run=run, interrupted="What is committed stays; the same command continues.")


def run(options: argparse.Namespace) -> int:
    from prep.config import load_config

    config = load_config(options.config, options.overrides)
    if options.dry_run:
        return _dry_run(config, as_json=options.json)
    from jobs.progress import ProgressDisplay
    from prep.job import run_job

    with ProgressDisplay(quiet=options.quiet) as display:
        summary = run_job(
            config, restart=options.restart, verify_all=options.verify, on_progress=display.show
        )
    if options.json:
        print(json.dumps(summary.to_dict(), indent=1))
    else:
        print("\n".join(_summary_lines(summary)))
    return 0


def _dry_run(config: JobConfig, *, as_json: bool) -> int:
    from prep.describe import describe_job

    plan = describe_job(config)
    print(json.dumps(plan, indent=1) if as_json else "\n".join(_plan_lines(plan)))
    return 0


def _plan_lines(plan: dict[str, Any]) -> list[str]:
    import yaml

    files = plan["sources"]
    lines = [yaml.safe_dump(plan["config"], sort_keys=False)]
    lines.append(f"sources: {len(files):,} files, {plan['source_bytes']:,} bytes")
    lines += [f"  {file['size']:>15,}  {file['format']:<8} {file['name']}" for file in files[:SHOWN_FILES]]
    if len(files) > SHOWN_FILES:
        lines.append(f"  ... and {len(files) - SHOWN_FILES:,} more")
    for section in ("tokenizer", "stages"):
        lines += ["", f"{section}:"]
        lines += [f"  {name:<11} {what}" for name, what in plan[section].items()]
    return [*lines, "", f"output: {plan['output']}"]


def _summary_lines(summary: Summary) -> list[str]:
    ledger = summary.ledger
    rows = [
        ("documents", f"{summary.documents:,}"),
        ("tokens", f"{summary.tokens:,} ({summary.token_dtype})"),
        (
            "text",
            f"{summary.text_bytes:,} bytes, {summary.tokens / max(1, summary.text_bytes):.3f} tokens a byte",
        ),
        ("shards", f"{summary.shards:,} with {summary.file_bytes:,} bytes"),
        ("sources", f"{summary.sources:,} files"),
    ]
    rejected = {reason: count for reason, count in ledger["rejected"].items() if count}
    if rejected:
        rows.append(("left out", ", ".join(f"{reason} {count:,}" for reason, count in rejected.items())))
    rows += [
        (name.replace("_", " "), f"{ledger[name]:,} documents")
        for name in ("control_text", "surrogates_replaced", "invalid_utf8_replaced")
        if ledger[name]
    ]
    if summary.worked:
        rows.append(("time", f"{summary.seconds:.1f} s"))
        rows.append(("backend", summary.backend))
        lossy = f", {summary.lossy_documents:,} of them normalised by it" if summary.lossy_documents else ""
        rows.append(("checked", f"{summary.checked_documents:,} documents against the reference{lossy}"))
    state = "done" if summary.worked else "finished before, nothing to do"
    return [
        f"{summary.name}: {state}",
        *(f"  {name:<22} {value}" for name, value in rows),
        "next:",
        f"  tokenloom catalog show {summary.path}",
        f"  tokenloom catalog verify {summary.path}",
        f"  tokenloom inspect {summary.path} --doc 0 --decode",
    ]
