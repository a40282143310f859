"""Which sample comes when: chunks of pointers, mixtures, and the sources that compute them."""

from runtime.types import SampleId
from runtime.work.chunk import ComponentOrder, MixtureReadConfig, MixtureReadMode, WorkChunk
from runtime.work.mixture import MixtureSpec
from runtime.work.plan import DatasetPlan, MixturePlan
from runtime.work.source import WorkSource
from runtime.work.static import StaticMixtureWorkSource
from runtime.work.tokens import CountingSpec, TokenEstimation

__all__ = [
    "ComponentOrder",
    "CountingSpec",
    "DatasetPlan",
    "MixturePlan",
    "MixtureReadConfig",
    "MixtureReadMode",
    "MixtureSpec",
    "SampleId",
    "StaticMixtureWorkSource",
    "TokenEstimation",
    "WorkChunk",
    "WorkSource",
]
