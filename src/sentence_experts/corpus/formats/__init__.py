"""Bytes to `Paper`: one module per format."""
