"""From a corpus to training pairs: linked works, domains, splits and negatives."""
