"""The encoder families with experts: their configs, registration with transformers, and models."""
