"""The demo: the main job, and what experts are for, as calls of public functions."""
