"""Recipes of models trained on tasks (MoTE): tasks, extend, train, evaluate on task datasets or MTEB."""
