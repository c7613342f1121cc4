"""Uses of other libraries that their documentation does not promise, a module per library.

Each has a test in `tests/compat` that fails when the library changes.
"""
