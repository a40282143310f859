"""A small byte-level BPE made on the spot, for quickstarts and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def train_bpe(texts: Iterable[str], vocab_size: int, eos_token: str) -> bytes:
    """Train a byte-level BPE; equal texts give equal bytes.

    Args:
        texts: the text to learn from.
        vocab_size: how many ids, the 256 bytes and the EOS token included.
        eos_token: the one control token.

    Returns:
        a tokenizer.json.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - heavy

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[eos_token],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str().encode()
