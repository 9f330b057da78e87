"""BeeGFS's own tools: `beegfs` of version 8, `beegfs-ctl` of version 7, asked for one and the same."""
