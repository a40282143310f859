"""The floor of the fast path: read, encode on every worker, write flat arrays, and nothing else.

No order, no restart, no checks, no provenance. What the hardware and the encoder allow.

    python tests/bench/floor.py FOLDER TOKENIZER.json OUT [WORKERS [tokenizers]]
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from queue import Empty
from typing import Any

RANGE_BYTES = 4 << 20


def texts_of_range(path: Path, start: int, stop: int) -> list[str]:
    import orjson

    with path.open("rb") as stream:
        stream.seek(max(0, start - 1))
        data = stream.read(stop - max(0, start - 1))
        if start:
            data = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
        if data and not data.endswith(b"\n"):
            data += stream.readline()
    return [orjson.loads(line)["text"] for line in data.split(b"\n") if line]


def texts_of_zst(path: Path) -> Any:
    import orjson
    import zstandard

    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        rest = b""
        while piece := stream.read(RANGE_BYTES):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            yield [orjson.loads(line)["text"] for line in lines]
        if rest:
            yield [orjson.loads(rest)["text"]]


def texts_of_groups(path: Path, group: int) -> list[str]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, memory_map=True)
    return file.read_row_group(group, columns=["text"], use_threads=False)["text"].to_pylist()


def work(queue: Any, tokenizer: str, out: Path, number: int, backend: str) -> None:
    os.environ["FASTOKENS_BPE_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import numpy as np

    eos = 50256  # of GPT-2; its value changes nothing
    if backend == "tokenizers":
        import tokenizers

        reference = tokenizers.Tokenizer.from_file(tokenizer)
    else:
        import fastokens

        encoder = fastokens.Tokenizer.from_file(tokenizer)

    def encode(texts: list[str]) -> None:
        if backend == "tokenizers":
            for encoding in reference.encode_batch_fast(texts, add_special_tokens=False):
                stream.write(np.array([*encoding.ids, eos], np.uint16).data)
            return
        ids, offsets = encoder.encode_batch_flat(texts, False, True)
        flat = np.insert(
            np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64)[1:].astype(np.int64), eos
        )
        stream.write(flat.astype(np.uint16).data)
        index.write(offsets)

    with (out / f"{number}.bin").open("wb") as stream, (out / f"{number}.idx").open("wb") as index:
        while True:
            try:
                kind, path, start, stop = queue.get(timeout=0.2)
            except Empty:
                return
            if kind == "range":
                encode(texts_of_range(path, start, stop))
            elif kind == "group":
                encode(texts_of_groups(path, start))
            else:
                for texts in texts_of_zst(path):
                    encode(texts)


def main() -> None:
    folder, tokenizer, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    workers = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    backend = sys.argv[5] if len(sys.argv) > 5 else "fastokens"
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for path in sorted(folder.iterdir()):
        if path.suffix == ".jsonl":
            for start in range(0, path.stat().st_size, RANGE_BYTES):
                queue.put(("range", path, start, start + RANGE_BYTES))
        elif path.suffix == ".zst":
            queue.put(("zst", path, 0, 0))
        elif path.suffix == ".parquet":
            import pyarrow.parquet as pq

            for group in range(pq.read_metadata(path).num_row_groups):
                queue.put(("group", path, group, 0))
    processes = [
        context.Process(target=work, args=(queue, tokenizer, out, number, backend))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
