"""Checks that operators and accumulators keep what they promise, before a run."""
