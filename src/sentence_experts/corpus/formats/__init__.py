"""Parsers from bytes to `Paper`, one module per format."""
