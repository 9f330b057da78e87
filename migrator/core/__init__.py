"""The common base: errors, units, paths, events, states, clock."""
