"""The demo: the main job as a list of commands, on real articles or on a simulated corpus."""
