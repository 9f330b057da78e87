"""GlusterFS: the volume as glusterd describes it, and its bricks, walked and looked at on their own hosts."""
