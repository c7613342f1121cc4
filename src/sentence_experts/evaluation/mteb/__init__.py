"""Models on the Massive Text Embedding Benchmark, and on local tasks that follow its protocol."""
