"""The comparison of routing weights (RW) with hidden states (HS): MoEE, sections 3.2 and 4.4."""
