"""What training pairs give away about test pairs, and what figures are without it."""
