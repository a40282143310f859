"""The training half: reads catalogs in an order that can be named, repeated and resumed exactly."""

from runtime.io import Dataset

__all__ = ["Dataset"]
