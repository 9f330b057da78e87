"""Alembic's entry: the program hands over its connection; developers may name a file (`-x ledger=FILE`)."""

from pathlib import Path

from alembic import context
from sqlalchemy import Connection

from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.tables import metadata


def migrate(connection: Connection) -> None:
    # One transaction for all revisions: a kill in the middle leaves the old schema.
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    database = Database(Path(context.get_x_argument(as_dictionary=True)["ledger"]), create=True, foreign_keys=False)
    with database.write() as own:
        migrate(own)
    database.close()
