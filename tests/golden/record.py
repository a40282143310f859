"""Writes the golden files anew: `python tests/golden/record.py`.

Only for a change of the format or of an order that is meant; the change is then to be seen in the diff.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa

from prep.config import load_config
from prep.index import build_catalog
from prep.job import run_job

DATA = Path(__file__).parent / "data"
JOBS = ("plain", "shuffled")
RAW = DATA / "raw"
"""Raw files, kept; their catalog is written among them."""


def record(name: str) -> None:
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    overrides = [
        f"source.paths={json.dumps([str(DATA / 'in' / '*.jsonl')])}",
        f"tokenizer.path={json.dumps(str(DATA / 'tokenizer.json'))}",
        f"output.path={json.dumps(str(folder))}",
    ]
    run_job(load_config(DATA / f"{name}.yaml", overrides))
    for path in (folder / "_job").iterdir():
        if path.is_file():  # what is left is free of paths, times and hosts
            path.unlink()


def record_raw() -> None:
    for path in (RAW / "index", RAW / "_job"):
        shutil.rmtree(path, ignore_errors=True)
    build_catalog(RAW, name="golden", rebuild=True)
    shutil.rmtree(RAW / "_job")


def record_orders() -> None:
    from test_orders import ORDERS, found

    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found().items()]
    ORDERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    for job in JOBS:
        record(job)
    record_raw()
    record_orders()
    (DATA / "recorded.json").write_text(json.dumps({"pyarrow": pa.__version__}) + "\n", encoding="utf-8")
