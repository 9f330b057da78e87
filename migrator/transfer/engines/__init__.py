"""Programs that copy one chunk, and drivers that copy a tree."""
