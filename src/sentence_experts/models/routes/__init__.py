"""The ways of a sequence to its expert: routes, their tokenizer, and learned routers."""
