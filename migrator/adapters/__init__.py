"""What touches the world: file systems, processes, engines, ledger, catalog, output."""
