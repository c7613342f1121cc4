"""Task datasets: a hierarchy of tasks and datasets, from a YAML file to training pairs and test sets."""
