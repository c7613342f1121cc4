"""Many texts to vectors, and vectors to nearest neighbours."""
