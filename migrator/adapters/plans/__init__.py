"""Plan documents and their chunk lists on disk."""
