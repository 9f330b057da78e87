"""`init`: the site is recorded."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import click

from migrator import bootstrap
from migrator.cli.context import open_site, verb
from migrator.cli.documents import init_document
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.errors import ExitCode, UsageError
from migrator.stages.init import InitRequest, draft_site, make_state_directory, record_site, site_of, write_site_file
from migrator.stages.init_guards import check_new_site, refuse_misplaced

_PATH = click.Path(path_type=Path)


@click.command("init")
@click.option("--source-mount", type=_PATH, help="Mount point of the source (default: detected).")
@click.option("--target-mount", type=_PATH, help="Mount point of the target (default: detected).")
@click.option("--trees", multiple=True, metavar="GLOB", help="User trees, e.g. 'home/*'; repeatable.")
@click.option("--name", metavar="NAME", help="Name of the site.")
@click.option("--state-dir", type=_PATH, help="Directory on a local disk for ledger, catalogs, manifests and logs.")
@click.option("--volume", metavar="NAME", help="Gluster volume (default: the one mounted at the source).")
@click.option("--gluster", metavar="COMMAND", help="Command to use instead of gluster.")
@click.option("--inodes-free", type=int, help="Number of files the target can hold, if it reports none.")
@verb
def init_command(
    invocation: Invocation,
    *,
    source_mount: Path | None,
    target_mount: Path | None,
    trees: Sequence[str],
    name: str | None,
    state_dir: Path | None,
    volume: str | None,
    gluster: str | None,
    inodes_free: int | None,
) -> ExitCode:
    """Write site.toml, create the ledger, record both file systems; may be repeated."""
    request = InitRequest(
        source_mount=source_mount,
        target_mount=target_mount,
        trees=tuple(trees),
        name=name,
        state_dir=state_dir,
        volume=volume,
        gluster=gluster,
        inodes_free=inodes_free,
    )
    file, mounts = invocation.site_file, bootstrap.mounts()
    draft = None if os.path.lexists(file) else draft_site(request, mounts)
    if draft is None and request.names_anything:
        raise UsageError(
            f"{file} is there already; init does not overwrite it",
            hint="edit it, then run `migrator init` without options: it completes what is missing",
        )
    site = open_site(invocation) if draft is None else site_of(draft, file)
    refuse_misplaced(site)
    wiring = bootstrap.Wiring(site)
    with wiring.source() as source, wiring.target() as target:
        if not site.ledger_file.exists():
            check_new_site(site, source=source, target=target, mounts=mounts)
        if draft is not None:
            write_site_file(file, draft)
            click.echo(f"migrator: wrote {file}", err=True)
        make_state_directory(site)
        with wiring.ledger(create=True) as ledger:
            result = record_site(
                site,
                source=source,
                target=target,
                ledger=ledger,
                clock=wiring.clock,
                new_site_id=lambda: str(uuid.uuid4()),
                mounts=mounts,
            )
    present(invocation, result, init_document)
    return ExitCode.DONE
