"""Whether a verb probes both file systems, seen by the lock that whoever probes takes first of all."""
