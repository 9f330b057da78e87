"""migrator: move a production GlusterFS volume to BeeGFS, user by user, and prove it."""

__version__ = "1.0.0"
