"""`tokenloom mixture`: what a mixture will draw, before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "mixture",
        help="plan a mixture of datasets",
        description="Plan a mixture of datasets before anything runs.",
    )
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    plan = actions.add_parser("plan", help="what a run draws of each dataset, and what ends it")
    plan.add_argument("config", help="the mixture's YAML file")
    plan.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a field")
    plan.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="counts the tokens of raw datasets: a tokenizer.json, its folder, a hub id",
    )
    plan.add_argument(
        "--text-field",
        default="text",
        metavar="FIELD",
        help="which field of raw rows it counts; default: text",
    )
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> int:
    from prep.catalog.errors import ConfigError
    from runtime.work import CountingSpec
    from runtime.work.config import load_source

    source = load_source(options.config, options.set)
    if source.requires_token_priming:
        if options.tokenizer is None:
            raise ConfigError(
                f"{options.config}: weights count tokens, and a dataset is raw: give --tokenizer, or tokens "
                "per byte as token_estimation.primer"
            )
        source.prime(counting_spec=CountingSpec(options.tokenizer, options.text_field))
    plan = source.plan()
    print(json.dumps(plan.to_dict(), indent=1) if options.json else plan)
    return 0
