"""The bricks of the volume: what there is, and their life cycle."""
