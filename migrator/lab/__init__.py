"""The lab: a real cluster on this machine with invented users, for rehearsals."""
