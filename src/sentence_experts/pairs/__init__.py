"""Training pairs from a corpus: linked works, domains, splits and negatives."""
