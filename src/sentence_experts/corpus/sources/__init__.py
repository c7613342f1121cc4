"""The services that articles and citations are fetched from, in a module each."""
