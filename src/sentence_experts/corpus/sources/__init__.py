"""Where articles and citations are fetched from: one module per service."""
