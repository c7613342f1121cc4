"""Task datasets: tasks with their datasets, from a YAML file to training pairs and test sets."""
