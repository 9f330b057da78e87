"""`python -m migrator`."""

from migrator.cli.main import main

main()
