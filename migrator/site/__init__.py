"""site.toml, `init`, and the guards of mounts and sentinels."""
