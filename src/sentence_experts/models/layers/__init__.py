"""Experts inside a block, the dispatch of sequences to them, and packed batches without padding."""
