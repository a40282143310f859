"""What a job would do, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prep.job import output_folder
from prep.pipeline.resources import available_memory, available_processors, default_readers, worker_count
from prep.pipeline.runner import first_choice
from prep.readers import compression_of
from prep.resolve import resolve
from prep.sources.listing import list_sources
from prep.tokenizers.backends import FAST
from prep.tokenizers.definition import load_definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prep.config import JobConfig
    from prep.sources.listing import SourceFile


def describe_job(config: JobConfig) -> dict[str, Any]:
    """The resolved configuration, the source list, and the planned stages and workers.

    Raises:
        InputError: a path matches nothing or has a suffix that tells no format.
    """
    files = list_sources(config)
    return {
        "config": config.printable(),
        "sources": [{"name": file.name, "size": file.size, "format": file.format} for file in files],
        "source_bytes": sum(file.size for file in files),
        "tokenizer": _tokenizer(config, files),
        "stages": _stages(config, files),
        "output": str(output_folder(config)),
    }


def _tokenizer(config: JobConfig, files: Sequence[SourceFile]) -> dict[str, str]:
    train = config.tokenizer.train
    if train is not None:
        return {"made of": f"the sources' first {train.max_bytes:,} bytes, {train.vocab_size:,} ids"}
    definition = load_definition(config.tokenizer.path or "")
    resolved = resolve(config, definition, files)
    return {
        "fingerprint": resolved.tokenizer,
        "vocabulary": f"{definition.largest_id + 1:,} ids as {resolved.layout.token_dtype}",
        "BOS": str(resolved.boundaries.bos_id),
        "EOS": str(resolved.boundaries.eos_id),
    }


def _stages(config: JobConfig, files: Sequence[SourceFile]) -> dict[str, str]:
    processing = config.processing
    workers = worker_count(processing)
    readers = default_readers(workers) if processing.readers == "auto" else processing.readers
    remote = sum(not file.is_local for file in files)
    streams = sum(file.format == "arrow" or compression_of(file.name) is not None for file in files)
    memory = available_memory()
    bound = f", memory limit {memory:,} bytes" if memory else ""
    backend, reason = first_choice(config.tokenizer.backend, ())
    inline = "in this process, one stage after the other"
    return {
        "downloader": f"{remote:,} remote files, at most {processing.download_bytes:,} bytes ahead"
        if remote
        else "nothing to do, all files are local",
        "reader": inline
        if workers == 0
        else f"{streams:,} files as streams in up to {readers} reader processes, "
        f"{len(files) - streams:,} split up in the tokenizer processes",
        "tokenizer": inline
        if workers == 0
        else f"{workers} processes ({available_processors()} processors usable{bound}), "
        f"blocks of {processing.batch_bytes:,} bytes",
        "backend": f"{backend}: {reason}"
        if backend != FAST
        else f"{backend}, if it supports the tokenizer and agrees with the reference",
        "writer": f"shards of {config.output.shard_size:,} bytes, compression {config.output.compression}",
    }
