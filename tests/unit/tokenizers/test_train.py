"""A tokenizer made on the spot is a usable one, and the same each time."""

from __future__ import annotations

import json

from prep.tokenizers.boundaries import Boundaries, resolve_boundaries
from prep.tokenizers.definition import TokenizerDefinition
from prep.tokenizers.probes import probe_strings
from prep.tokenizers.reference import ReferenceEncoder
from prep.tokenizers.train import train_bpe

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(300)]


def test_equal_texts_give_an_equal_file() -> None:
    assert train_bpe(iter(TEXTS), 400, "<eos>") == train_bpe(TEXTS, 400, "<eos>")


def test_other_texts_or_sizes_give_another_file() -> None:
    made = {
        train_bpe(TEXTS, 400, "<eos>"),
        train_bpe(TEXTS[::-1][:5], 400, "<eos>"),
        train_bpe(TEXTS, 300, "<eos>"),
    }
    assert len(made) == 3


def test_it_has_the_wanted_size_and_one_control_token() -> None:
    definition = TokenizerDefinition.from_bytes(train_bpe(TEXTS, 300, "<eos>"))
    assert definition.largest_id == 299
    assert list(definition.control_ids) == ["<eos>"]
    assert resolve_boundaries(definition) == Boundaries(None, definition.control_ids["<eos>"])


def test_it_encodes_every_text_without_loss() -> None:
    encoder = ReferenceEncoder(train_bpe(["only ascii here"], 257, "<eos>").decode())
    for text in probe_strings(["<eos>"]):
        assert encoder.gives_back(text, encoder.encode([text]).ids.tolist())


def test_it_learns_from_the_text() -> None:
    trained = ReferenceEncoder(train_bpe(TEXTS, 400, "<eos>").decode())
    untrained = ReferenceEncoder(train_bpe([], 257, "<eos>").decode())
    assert len(trained.encode(TEXTS[:1]).ids) < len(untrained.encode(TEXTS[:1]).ids) / 2


def test_no_text_gives_the_bytes_alone() -> None:
    content = json.loads(train_bpe([], 300, "<eos>"))
    assert len(content["model"]["vocab"]) == 257
