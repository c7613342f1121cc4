"""What routing weights (RW) tell that hidden states (HS) do not: MoEE, sections 3.2 and 4.4."""
