"""What the stages need to know of a job, small and the same in every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prep.catalog.schema import ShardLayout
    from prep.readers.block import ReadOptions
    from prep.tokenizers.boundaries import Boundaries


@dataclass(frozen=True)
class EncoderSettings:
    """How a tokenizer process makes its encoder.

    Attributes:
        backend: the backend's name.
        match_control_tokens: whether control tokens in text become themselves.
        probes: strings whose ids the process reports when it is ready.
    """

    backend: str
    match_control_tokens: bool
    probes: tuple[str, ...]


@dataclass(frozen=True)
class StageSettings:
    """What decides the bytes of a token block, and the size of the pieces.

    Attributes:
        read: columns and record policies.
        layout: the shard's columns.
        boundaries: BOS and EOS.
        control_tokens: texts of the control tokens, for the policy and the count.
        control_policy: "text", "token" or "error".
        on_empty: "skip" or "keep".
        min_bytes, max_bytes: length limits of a document's text.
        batch_bytes: about the size of a block.
        large_bytes: documents above this size are encoded one at a time; None: no such limit.
    """

    read: ReadOptions
    layout: ShardLayout
    boundaries: Boundaries
    control_tokens: tuple[str, ...] = ()
    control_policy: Literal["text", "token", "error"] = "text"
    on_empty: Literal["skip", "keep"] = "skip"
    min_bytes: int = 0
    max_bytes: int | None = None
    batch_bytes: int = 4 << 20
    large_bytes: int | None = None
