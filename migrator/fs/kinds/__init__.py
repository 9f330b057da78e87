"""File systems of the field: what each is trusted with, and what its own command reports."""
