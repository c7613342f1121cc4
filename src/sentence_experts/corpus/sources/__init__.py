"""Where articles and citations are fetched from: one module a service."""
