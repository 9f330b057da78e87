"""Notices to users: when they are moved, what they should do, and the calendar of announced cutovers."""
