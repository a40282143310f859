"""Looking at data without a pipeline."""

from runtime.debug.inspector import DatasetInspector

__all__ = ["DatasetInspector"]
