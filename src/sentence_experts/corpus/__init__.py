"""Papers and citations come in: JATS archives and tables become `papers.parquet` and `citations.parquet`."""
