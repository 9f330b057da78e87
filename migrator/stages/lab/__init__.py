"""A rehearsal: a real Gluster cluster on this machine, filled by invented users, and its removal."""
