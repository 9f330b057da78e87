"""The hooks of a site: executables below `hooks_dir`."""
