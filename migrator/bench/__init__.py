"""`bench`: the field's benchmarks on mounted file systems."""
