"""What everything stands on: errors, units, paths, events, states, clock."""
