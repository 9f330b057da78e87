"""`plan`: ranking, batches, chunk lists, surprises, forecast."""
