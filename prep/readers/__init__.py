"""One file format a module: scanning into blocks of documents, and rows by index."""

from __future__ import annotations

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "txt",
}
COMPRESSIONS = (".gz", ".zst")
TEXT_FORMATS = ("jsonl", "json", "txt")


def format_of(location: str) -> str | None:
    """The format that a file's suffix tells, or None."""
    name = location.rpartition("/")[2].lower()
    compressed = compression_of(name)
    if compressed:
        name = name[: -len(compressed)]
    kind = SUFFIXES.get(name[name.rfind(".") :]) if "." in name else None
    return None if compressed and kind not in TEXT_FORMATS else kind


def compression_of(location: str) -> str | None:
    """The suffix of a compressed text file, or None."""
    return next((suffix for suffix in COMPRESSIONS if location.lower().endswith(suffix)), None)
