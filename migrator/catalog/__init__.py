"""Catalogs and manifests: Parquet files queried with DuckDB."""
