"""Models as repositories of the Hugging Face hub."""
