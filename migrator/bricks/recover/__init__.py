"""`brick drain --recover`: bring back files that a drain left on a brick."""
