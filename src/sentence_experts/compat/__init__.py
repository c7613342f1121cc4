"""Private or fragile uses of other libraries, one module per library; `tests/compat/` watches each."""
