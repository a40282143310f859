"""`tokenloom stream`: run through a pipeline and see what a training loop would get."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from runtime.config import PipelineConfig
    from runtime.engine.ledger import Counts, Ledger
    from runtime.observability.stream import StreamTotals
    from runtime.pipeline import Pipeline
    from runtime.training.batches import SampleBatch

SHOWN_TEXT = 160
MEGA = 1e6


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "stream",
        help="run through a pipeline and see what a training loop would get",
        description="Run through the pipeline of a configuration as a training loop would, look at some of "
        "its rows, and see how fast it is, what share each dataset has, and where everything went.",
    )
    parser.add_argument("config", help="the pipeline's YAML file")
    parser.add_argument("--steps", type=int, metavar="N", help="stop after N batches; default: at the end")
    parser.add_argument("--decode", type=int, default=0, metavar="N", help="print the text of N rows")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a field")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from jobs.progress import StreamDisplay
    from prep.catalog.errors import ConfigError
    from runtime.config import load_pipeline
    from runtime.observability.stream import StreamTotals, memory, stream

    for name in ("steps", "decode"):
        if (value := getattr(options, name)) is not None and value < 0:
            raise ConfigError(f"--{name}: expected 0 or more, found {value}")
    config = load_pipeline(options.config, options.set)
    decoded: list[dict[str, Any]] = []
    totals = StreamTotals()
    with config.pipeline(options.config) as pipeline, StreamDisplay(quiet=options.quiet) as display:
        plan = pipeline.explain()
        for batch, totals in stream(pipeline, options.steps):
            display.show(totals, options.steps)
            if len(decoded) < options.decode:
                decoded += _decoded(batch, config)[: options.decode - len(decoded)]
        report = {
            "plan": str(plan).splitlines(),
            "decoded": decoded,
            **totals.to_dict(),
            "components": _components(pipeline, config, totals),
            "ledger": asdict(ledger := pipeline.ledger()),
            "memory": memory(),
        }
    if options.json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        print("\n".join([*_row_lines(decoded), *_lines(report, ledger)]))
    return 0


def _components(pipeline: Pipeline, config: PipelineConfig, totals: StreamTotals) -> list[dict[str, Any]]:
    """What was reached of the mixture."""
    weights = {entry.name: entry.weight for entry in config.datasets}
    documents = sum(counts.documents for counts in totals.components.values())
    found = []
    for number, name in pipeline.components.items():
        counts = totals.components.get(number)
        ended, tokens = (counts.documents, counts.tokens) if counts else (0, 0)
        found.append(
            {
                "name": name,
                "target": weights[name] / sum(weights.values()),
                "unit": config.unit or "samples",
                "documents": ended,
                "document_share": ended / documents if documents else 0.0,
                "tokens": tokens,
                "token_share": tokens / totals.tokens if totals.tokens else 0.0,
            }
        )
    return found


def _decoded(batch: SampleBatch, config: PipelineConfig) -> list[dict[str, Any]]:
    """The rows of a batch with where each piece comes from and its text."""
    from pathlib import Path

    from prep.finish import stored_definition
    from prep.tokenizers.reference import ReferenceEncoder

    encoders: dict[str, ReferenceEncoder] = {}
    paths = {entry.name: Path(entry.path.removeprefix("file://")) for entry in config.datasets}
    rows = []
    for ids, origins in zip(batch.to_training()["input_ids"].tolist(), batch.provenance(), strict=True):
        pieces, place = [], 0
        for origin in origins:
            if origin.dataset not in encoders:
                definition = stored_definition(paths[origin.dataset])
                encoders[origin.dataset] = ReferenceEncoder(definition.encoding_json)
            size = origin.stop_token - origin.first_token
            text = encoders[origin.dataset].decode(ids[place : place + size])
            pieces.append({**origin._asdict(), "text": text})
            place += size
        rows.append({"pieces": pieces, "padding": len(ids) - place})
    return rows


def _row_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for number, row in enumerate(rows):
        lines.append(f"row {number}: {len(row['pieces'])} pieces, {row['padding']:,} tokens of padding")
        for piece in row["pieces"]:
            lines.append(
                f"  {piece['dataset']}: {piece['source_file']}, row {piece['source_row'] + 1:,}, tokens "
                f"{piece['first_token']:,} to {piece['stop_token']:,}"
            )
            shown = piece["text"][:SHOWN_TEXT]
            lines.append(f"    {shown!r}" + (" ..." if len(piece["text"]) > SHOWN_TEXT else ""))
    return [*lines, ""] if lines else lines


def _lines(report: dict[str, Any], ledger: Ledger) -> list[str]:
    return [
        *report["plan"],
        "",
        *_speed_lines(report),
        "",
        *_mixture_lines(report["components"]),
        "",
        "ledger",
        _ledger_line("documents", ledger.documents),
        _ledger_line("tokens", ledger.tokens),
    ]


def _speed_lines(report: dict[str, Any]) -> list[str]:
    from jobs.progress import short

    tokens, seconds, cpu = report["tokens"], max(report["seconds"], 1e-9), max(report["cpu_seconds"], 1e-9)
    waiting, arrays = report["waiting_seconds"] / seconds, report["array_seconds"] / seconds
    lines = {
        "batches": f"{report['batches']:,} of {report['rows']:,} rows",
        "tokens": f"{tokens:,}, {short(tokens / seconds)} a second, {short(tokens / cpu)} a CPU-second",
        "time": f"{seconds:.2f} s, {waiting:.0%} waiting for batches, {arrays:.0%} making arrays",
        "first": f"batch after {report['first_batch_seconds']:.3f} s",
        "packing": f"{report['fill']:.2%} of {report['slots']:,} places are filled",
        "memory": ", ".join(f"{value / MEGA:.0f} MB {name}" for name, value in report["memory"].items()),
    }
    return [f"{name:<8} {value}" for name, value in lines.items() if value]


def _mixture_lines(components: list[dict[str, Any]]) -> list[str]:
    width = max(len("mixture"), *(len(entry["name"]) for entry in components))
    target = f"target, {components[0]['unit']}"
    heads = f"{target:>15}  {'of tokens':>9}  {'of documents':>12}  {'tokens':>15}  {'documents':>11}"
    return [
        f"{'mixture':<{width}}  {heads}",
        *(f"{entry['name']:<{width}}  {_mixture_line(entry)}" for entry in components),
    ]


def _mixture_line(entry: dict[str, Any]) -> str:
    shares = f"{entry['target']:>15.2%}  {entry['token_share']:>9.2%}  {entry['document_share']:>12.2%}"
    return f"{shares}  {entry['tokens']:>15,}  {entry['documents']:>11,}"


def _ledger_line(name: str, counts: Counts) -> str:
    lost = ", ".join(f"{count:,} ({reason})" for reason, count in counts.lost.items()) or "0"
    return (
        f"{name:<9} taken {counts.taken:,} = delivered {counts.delivered:,} + buffered {counts.buffered:,} "
        f"+ lost {lost}"
    )
