"""Models made from models: extend, grow, merge, heads and low-rank adapters."""
