"""`doctor`: preflight checks, each finding with its fix."""
