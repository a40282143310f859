"""The check of what the tokenizer processes give, on a sample of documents while the job runs.

Each sampled document is encoded again with the reference, and decoded to see whether its text comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prep.catalog.columns import flat_values
from prep.catalog.errors import IntegrityError
from prep.tokenizers.probes import describe_difference

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from prep.pipeline.reorder import PlacedBlock
    from prep.tokenizers.boundaries import Boundaries
    from prep.tokenizers.reference import ReferenceEncoder

TEXT_PER_CHECKED_BYTE = 3000
"""The reference costs about 40 times what the fast encoder does, so this keeps the check below 2 %."""


class EncoderContradictedError(IntegrityError):
    """The fast backend gave other ids than the reference."""


class SampleCheck:
    """Compares sampled documents with the reference, at least one for every shard that a block begins in.

    Attributes:
        checked_documents, checked_bytes: how much was compared.
        lossy_documents: those whose text does not come back from their ids: the tokenizer normalises text,
            or has no token for some of it.

    Args:
        reference: the reference backend, with the job's control-token policy.
        boundaries: what the job adds to each document.
        names: the source files' names.
        shard: tells the index of the shard that is being written.
    """

    def __init__(
        self,
        reference: ReferenceEncoder,
        boundaries: Boundaries,
        names: Sequence[str],
        shard: Callable[[], int],
    ) -> None:
        self._reference = reference
        self._boundaries = boundaries
        self._names = names
        self._shard = shard
        self._checked_shard = -1
        self._text_bytes = 0
        self.checked_bytes = 0
        self.checked_documents = 0
        self.lossy_documents = 0

    def watch(self, blocks: Iterable[PlacedBlock]) -> Generator[PlacedBlock, None, None]:
        """Pass blocks on, checking a sample of them.

        Raises:
            EncoderContradictedError: a document has other ids than the reference gives.
        """
        for block in blocks:
            self._text_bytes += int(block.documents.column("text_bytes").to_numpy().sum(dtype="int64"))
            if block.sample >= 0 and self._is_due(len(block.sample_text)):
                self._check(block)
            yield block

    def _is_due(self, size: int) -> bool:
        affordable = (self.checked_bytes + size) * TEXT_PER_CHECKED_BYTE <= self._text_bytes
        return affordable or self._shard() != self._checked_shard

    def _check(self, block: PlacedBlock) -> None:
        self._checked_shard = self._shard()
        self.checked_bytes += len(block.sample_text)
        self.checked_documents += 1
        text = block.sample_text.decode("utf-8")
        expected = self._reference.encode([text]).ids.tolist()
        row = block.documents.slice(block.sample, 1)
        ids = flat_values(row.column("tokens")).tolist()
        begin = 0 if self._boundaries.bos_id is None else 1
        found = ids[begin : len(ids) - (self._boundaries.eos_id is not None)]
        self.lossy_documents += not self._reference.gives_back(text, found)
        if found != expected:
            file = self._names[row.column("source_file")[0].as_py()]
            number = row.column("source_row")[0].as_py()
            raise EncoderContradictedError(
                f"{file}: row {number + 1}: the fast backend and the reference disagree: "
                f"{describe_difference(text, expected, found)}. Begin anew with --restart and "
                "--set tokenizer.backend=tokenizers; what is committed so far may hold wrong ids"
            )
