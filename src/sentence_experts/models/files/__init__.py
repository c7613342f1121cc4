"""Weights on disk and in memory: one file per expert, resident experts, fingerprints."""
