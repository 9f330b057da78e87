"""Hosts and processes: this machine, brick servers over ssh, nodes of Slurm; the confinement of streams."""
