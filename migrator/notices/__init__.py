"""Notices to users: dates, advice and losses of their move, and the calendar of announced cutovers."""
