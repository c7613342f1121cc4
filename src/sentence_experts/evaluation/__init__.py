"""Measurements of how well cosine similarity tells linked pairs of papers from unlinked ones."""
