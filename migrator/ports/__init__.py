"""Small protocols that the stages need and the adapters fulfil. No logic."""
