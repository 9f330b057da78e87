"""`init` and `doctor`."""

import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from migrator import app
from migrator.app.doctor import target_writers
from migrator.app.hosts import host_specs, reached
from migrator.app.scan import user_map
from migrator.cli.call import open_site, open_wiring, present, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.core.events import FindingStatus
from migrator.doctor.call import DoctorPorts
from migrator.doctor.doctor import examine
from migrator.doctor.model import TuningReport
from migrator.doctor.tuning import THIS_HOST, examine_tuning
from migrator.doctor.view import tuning_document
from migrator.fs.beneath import read_mounts
from migrator.fs.ports import FileSystem
from migrator.gluster.volume import GlusterSource
from migrator.hosts.site import HostSpec, SiteHosts
from migrator.render import document as doc
from migrator.render.log import MESSAGES
from migrator.report.view_status import finding_document
from migrator.scan.rules import choose_trees, parse_patterns
from migrator.scan.session import find_directories
from migrator.site import init
from migrator.site.config import Site

# --- `init`


_PATH = click.Path(path_type=Path)


@click.command("init")
@click.option("--source-mount", type=_PATH, help="Mount point of the source (default: detected).")
@click.option("--target-mount", type=_PATH, help="Mount point of the target (default: detected).")
@click.option("--trees", multiple=True, metavar="GLOB", help="User trees, e.g. 'home/*'; repeatable.")
@click.option("--state-dir", type=_PATH, help="Directory on a local disk for ledger, catalogs, manifests and logs.")
@verb
def init_command(
    global_options: GlobalOptions,
    *,
    source_mount: Path | None,
    target_mount: Path | None,
    trees: Sequence[str],
    state_dir: Path | None,
) -> ExitCode:
    """Write site.toml, create the ledger, record both file systems; may be repeated."""
    file, mounts, draft = global_options.site_file, read_mounts(), None
    if not os.path.lexists(file):
        draft = init.draft_site(
            mounts, source_mount=source_mount, target_mount=target_mount, trees=tuple(trees), state_dir=state_dir
        )
    elif source_mount or target_mount or trees or state_dir:
        raise UsageError(
            f"{file} already exists; init does not overwrite it",
            hint="edit it, then run `migrator init` without options to complete the setup",
        )
    site = open_site(global_options) if draft is None else init.site_of(draft, file)
    init.refuse_misplaced(site)
    wiring = app.Wiring(site)
    with wiring.source() as source, wiring.target() as target:
        if not site.ledger_file.exists():
            init.check_new_site(site, source=source, target=target, mounts=mounts)
            _refuse_without_trees(site, source)
        if draft is not None:
            init.write_site_file(file, draft)
            MESSAGES.info("migrator: wrote %s", file)
        init.make_state_directory(site)
        with wiring.ledger(create=True) as ledger:
            wiring.upgrade_rollbacks()
            result = init.record_site(
                site,
                source=source,
                target=target,
                ledger=ledger,
                clock=wiring.clock,
                new_site_id=lambda: str(uuid.uuid4()),
                make_journal=wiring.journal().make,
                mounts=mounts,
            )
    return present(global_options, result, _init_document)


def _refuse_without_trees(site: Site, source: FileSystem) -> None:
    """Refuse globs that match nothing, or overlap, before anything is written. Raises UsageError, Refused."""
    patterns = parse_patterns(site.users.trees, "[users] trees")
    found = [(pattern, find_directories(source, pattern)) for pattern in patterns]
    choose_trees(found, parse_patterns(site.users.exclude, "[users] exclude"), user_map(site))


def _init_document(result: init.InitResult) -> doc.Document:
    """The result of `init`."""
    source, target = result.source, result.target
    recorded: tuple[doc.Block, ...] = (
        doc.facts(
            [
                ("source", f"{source.filesystem} from {source.mounted_from}"),
                ("target", f"{target.filesystem} from {target.mounted_from}"),
            ]
        ),
        doc.paragraph("; ".join(result.done) if result.done else "the site is already set up"),
        *(doc.paragraph(note, alert=True) for note in result.notes),
    )
    return doc.page("Site", ("Recorded", recorded), subtitle=result.site_id)


# --- `doctor`


@click.command("doctor")
@click.option(
    "--tuning", is_flag=True, help="Compare settings of hosts, volume and BeeGFS with advice; change nothing."
)
@verb
def doctor_command(global_options: GlobalOptions, *, tuning: bool) -> ExitCode:
    """Check the site and print each finding with its fix; probe what the target preserves of a file."""
    wiring = open_wiring(global_options)
    if tuning:
        return _tuning(global_options, wiring)
    with ExitStack() as stack:
        source, target = stack.enter_context(wiring.source()), stack.enter_context(wiring.target())
        there = wiring.site.ledger_file.exists()
        world = DoctorPorts(
            site=wiring.site,
            source=source,
            target=target,
            ledger=stack.enter_context(wiring.ledger()) if there else None,
            processes=wiring.processes,
            clock=wiring.clock,
            blocking=wiring.blocking,
            mounts=read_mounts(),
            confinement_problem=wiring.executor().problem,
            hosts=SiteHosts(host_specs(wiring.site), lease_s=wiring.site.transfer.lease_s),
            hooks=wiring.hooks(),
            target_writers=target_writers(wiring, target),
            storage=wiring.storage_targets(),
            source_tool=wiring.source_tool,
            target_tool=wiring.target_tool,
            holders=wiring.locks().holders,
            require_newest=wiring.journal().require_newest,
        )
        findings = run_to_end(examine(world), when_interrupted="run `migrator doctor` again")
    present(global_options, findings, finding_document)
    failed = any(finding.status is FindingStatus.FAILURE for finding in findings)
    return ExitCode.FAILED if failed else ExitCode.DONE


def _tuning(global_options: GlobalOptions, wiring: app.Wiring) -> ExitCode:
    async def work() -> TuningReport:
        async with reached(wiring.site, {THIS_HOST: HostSpec()} | host_specs(wiring.site)) as hosts:
            return await examine_tuning(wiring.site, hosts, source if isinstance(source, GlusterSource) else None)

    with wiring.source() as source:
        report = run_to_end(work(), when_interrupted="run `migrator doctor --tuning` again")
    present(global_options, report, tuning_document)
    return ExitCode.DONE
