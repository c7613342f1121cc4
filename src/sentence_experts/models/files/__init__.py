"""Saving, fingerprints and checks of checkpoints, and the released ones."""
