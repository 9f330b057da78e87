"""`verify`: compare both sides of a batch and write the manifest."""
