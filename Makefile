# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`, as root.
# They install what is missing themselves (tools/setup.sh).

PYTHON_OF_VENV := .venv/bin/python

.PHONY: help venv demo rehearsal test test-all bench packages docs manual locks format clean

help:
	@echo "make demo    the main job from end to end on a rehearsal lab; prints the report (DEMO=--keep leaves the lab up)"
	@echo "make rehearsal  bricks drained, wiped and added on clusters of three layouts, while users write (REHEARSAL='--files N')"
	@echo "make test    the checks of every change: ruff, mypy, import-linter, tests; every guarantee, and a whole migration on a cluster"
	@echo "make test-all  the same with the exhaustive tests: kills at every step, storms, clusters of all layouts"
	@echo "make bench   the benchmarks, on labs of their own; writes docs/development/performance.md (options: BENCH='--keep')"
	@echo "make packages  sdist, wheel, .deb and .rpm with checksums and a list of components in dist/"
	@echo "make venv    only the set-up: Debian packages that are missing (as root; not with PACKAGES=none), and .venv (PACKAGES=program: without tools of tests)"
	@echo "make docs    docs/cli.md, docs/configuration.md, docs/metrics.md, docs/schemas and plans/sample.json, which are made by the program"
	@echo "make manual  the manual as a site, in build/manual"
	@echo "make locks   the locks with hashes, from pyproject.toml (LOCKS='--upgrade-package NAME' takes its newest version)"
	@echo "make format  the code in its one form"
	@echo "make clean   remove what the others made here"

venv:
	@tools/setup.sh

demo: venv
	$(PYTHON_OF_VENV) tools/demo.py $(DEMO)

rehearsal: venv
	$(PYTHON_OF_VENV) -m tools.rehearsal $(REHEARSAL)

test: venv
	@tools/test.sh

test-all: export PACKAGES := $(or $(PACKAGES),all)
test-all: venv
	@tools/test.sh all

bench: venv
	$(PYTHON_OF_VENV) -m bench all $(BENCH)

packages: venv
	$(PYTHON_OF_VENV) -m tools.packages

docs: venv
	$(PYTHON_OF_VENV) tools/reference_pages.py
	$(PYTHON_OF_VENV) tools/sample_plan.py
	$(PYTHON_OF_VENV) -m tools.json_schemas
	$(PYTHON_OF_VENV) -m tools.json_reference

manual: venv
	$(PYTHON_OF_VENV) tools/manual_site.py build/manual

locks: venv
	$(PYTHON_OF_VENV) tools/locks.py $(LOCKS)

format: venv
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix-only .

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
