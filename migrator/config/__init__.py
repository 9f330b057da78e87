"""site.toml: its schema, its words for sizes and times, its mistakes with line numbers."""
