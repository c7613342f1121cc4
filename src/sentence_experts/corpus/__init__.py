"""Import papers and citations: archives, records and tables become the Parquet tables of a corpus."""
