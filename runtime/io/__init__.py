"""What the training half reads: datasets, described by their shards."""

from runtime.io.dataset import Dataset
from runtime.io.memory import InMemoryShard

__all__ = ["Dataset", "InMemoryShard"]
