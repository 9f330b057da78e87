"""The rehearsal: a real cluster on this machine with invented users."""
