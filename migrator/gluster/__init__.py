"""GlusterFS: the volume as glusterd describes it, and its bricks, walked and examined on their own hosts."""
