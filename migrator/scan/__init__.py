"""`scan`: read the whole source once, over the bricks or the mount, and write a catalog."""
