"""Recipes of models trained on linked pairs (Hallee et al.): corpus, pairs, extend, train, evaluate."""
