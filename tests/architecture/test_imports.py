"""Imports go one way, and what is heavy is loaded only where it is used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("prep", "runtime", "jobs")
LEAVES = ("prep.catalog", "prep.readers", "prep.tokenizers")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}
HEAVY = (
    "tokenizers",
    "datasets",
    "torch",
    "ray",
    "s3fs",
    "fastokens",
    "transformers",
    "pandas",
    "huggingface_hub",
)


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def imported(name: str) -> set[str]:
    """The project's modules that a module imports, anywhere in its text, types included."""
    found: set[str] = set()
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return {module for module in found if module.split(".")[0] in PACKAGES}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has after running code."""
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], check=True, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_packages_are_looked_at() -> None:
    assert {name.split(".")[0] for name in MODULES} == set(PACKAGES)
    assert "prep.catalog.schema" in imported("prep.catalog.catalog")


@pytest.mark.parametrize("name", sorted(name for name in MODULES if inside(name, "prep")))
def test_prep_imports_nothing_of_the_other_packages(name: str) -> None:
    assert {module for module in imported(name) if not inside(module, "prep")} == set()


@pytest.mark.parametrize(
    "name", sorted(name for name in MODULES if any(inside(name, leaf) for leaf in LEAVES))
)
def test_leaves_import_nothing_but_the_catalog_and_themselves(name: str) -> None:
    own = next(leaf for leaf in LEAVES if inside(name, leaf))
    allowed = {own, "prep.catalog"}
    strays = {module for module in imported(name) if not any(inside(module, leaf) for leaf in allowed)}
    assert strays - {"prep"} == set()


@pytest.mark.parametrize("name", sorted(name for name in MODULES if inside(name, "runtime")))
def test_runtime_imports_nothing_of_prep_but_its_leaves(name: str) -> None:
    allowed = ("runtime", *LEAVES)
    strays = {module for module in imported(name) if not any(inside(module, leaf) for leaf in allowed)}
    assert strays - {"prep"} == set()


@pytest.mark.parametrize("name", sorted(name for name in MODULES if not inside(name, "jobs")))
def test_nobody_imports_jobs(name: str) -> None:
    assert {module for module in imported(name) if inside(module, "jobs")} == set()


def test_the_package_prep_itself_is_empty() -> None:
    assert (ROOT / "prep" / "__init__.py").read_text(encoding="utf-8").strip() == ""


def test_every_package_says_that_it_is_typed() -> None:
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").is_file()] == []


def test_no_folder_is_named_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "base2"}
    assert [name for name in MODULES if vague & set(name.split("."))] == []


def test_the_runtime_loads_nothing_heavy() -> None:
    loaded = loaded_by("import runtime")
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.parametrize("leaf", ["prep.catalog.catalog", "prep.catalog.verify", "prep.readers.jsonl"])
def test_what_the_runtime_reads_with_loads_nothing_heavy(leaf: str) -> None:
    loaded = loaded_by(f"import {leaf}")
    assert [name for name in HEAVY if name in loaded] == []


def test_help_loads_no_array_library() -> None:
    run = "import sys\nfrom jobs.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    loaded = loaded_by(run)
    assert [name for name in ("numpy", "pyarrow", "pydantic", "fsspec", *HEAVY) if name in loaded] == []


def test_a_job_starts_its_processes_before_it_loads_what_is_heavy() -> None:
    loaded = loaded_by("import prep.job, prep.pipeline.processes")
    assert [name for name in ("numpy", "pyarrow", *HEAVY) if name in loaded] == []


@pytest.mark.parametrize("name", sorted(name for name in MODULES if inside(name, "prep.catalog")))
def test_nothing_on_disk_is_read_or_written_with_pickle(name: str) -> None:
    """Case Q77."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names & {"pickle", "marshal", "shelve", "dill", "cloudpickle"} == set()
    assert "allow_pickle" not in MODULES[name].read_text(encoding="utf-8")
