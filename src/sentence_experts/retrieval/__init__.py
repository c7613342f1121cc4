"""Search: from vectors to neighbours."""
