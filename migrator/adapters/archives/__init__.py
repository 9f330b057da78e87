"""Archives: tar in zstd frames, with an index in Parquet."""
