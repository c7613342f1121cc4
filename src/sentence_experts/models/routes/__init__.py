"""The routes of sequences to experts, the tokenizer that reads them, and learned routers."""
