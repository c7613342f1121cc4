"""Leaks from training pairs to test pairs, and how metrics change without them."""
