"""`run`: passes over batches by parallel confined streams."""
