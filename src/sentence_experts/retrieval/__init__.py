"""From vectors to neighbours."""
