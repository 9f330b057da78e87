"""Programs that copy one chunk."""
