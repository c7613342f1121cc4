"""Bytes to `Paper`: one module a format."""
