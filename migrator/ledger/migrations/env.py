"""Run by Alembic for each upgrade of a ledger, on the connection and in the transaction of `migrator.ledger.schema`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
