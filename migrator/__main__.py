"""`python -m migrator`."""

from migrator.cli.main import main

main(prog_name="migrator")
