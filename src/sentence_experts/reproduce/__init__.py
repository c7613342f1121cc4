"""Published experiments as recipes: run, and set beside the published figures."""
