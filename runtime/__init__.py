"""The training half: reads catalogs in an order that can be named, repeated and resumed exactly."""

from importlib.metadata import version

from runtime.io import Dataset
from runtime.pipeline import Pipeline
from runtime.training.batches import SampleBatch
from runtime.types import SampleMeta, SampleRecord
from runtime.work import MixtureSpec, StaticMixtureWorkSource, WorkSource

__version__ = version("tokenloom")

__all__ = [
    "Dataset",
    "MixtureSpec",
    "Pipeline",
    "SampleBatch",
    "SampleMeta",
    "SampleRecord",
    "StaticMixtureWorkSource",
    "WorkSource",
    "__version__",
]
