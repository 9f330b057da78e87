"""`brick drain --recover`: bring back what a drain left on a brick."""
