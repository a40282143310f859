"""The stages from text to token blocks, one a module, and `TokenProcessor`, which chains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prep.pipeline.processor import TokenProcessor

__all__ = ["TokenProcessor"]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: child processes and the command's start need only single stages.
    if name == "TokenProcessor":
        from prep.pipeline.processor import TokenProcessor  # noqa: PLC0415

        return TokenProcessor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
