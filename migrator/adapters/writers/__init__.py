"""Finding who has something below user trees open: a script that looks through /proc, and where it is run."""
