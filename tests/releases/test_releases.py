"""Files that each release wrote are read for ever: site.toml, plans with chunk lists, catalogs, manifests.

A folder for each release: copies of what it wrote for two trees with odd names, hard links, an ACL and an attribute. It is
never written anew; tests/ledger/fixtures has the ledgers.
"""

from pathlib import Path

import pytest

from migrator.catalog.files import ClosedCatalogs, open_closed
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.ports import Scratch
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.document import read_document
from migrator.plan.store import CatalogQueryFiles
from migrator.purge.proofs import open_proofs
from migrator.site.load import load_site

RELEASES = sorted(path for path in Path(__file__).parent.iterdir() if (path / "site.toml").is_file())
TREES = (b"home/alice", b"home/bob")
FILES = {
    b"home/alice/letter",
    b"home/alice/link",
    b"home/alice/new\nline",
    b"home/alice/project/data",
    b"home/alice/second-name",
    b"home/bob/empty",
    b"home/bob/\xff\xfe",
}
DIRECTORIES = {b"home/alice", b"home/alice/project", b"home/bob"}


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def test_there_is_one() -> None:
    assert RELEASES


def test_its_site_is_loaded(release: Path) -> None:
    site = load_site(release / "site.toml")
    assert (site.source.mount, site.target.mount) == (Path("/srv/old"), Path("/srv/new"))


def test_its_plan_and_chunk_lists_are_read(release: Path, tmp_path: Path) -> None:
    (document,) = (release / "plans").glob("*.json")
    plan, _ = read_document(document.read_text(encoding="utf-8"), name=document.stem)
    assert {tree.path for batch in plan.batches for tree in batch.trees} == set(TREES)
    lists = ChunkListFiles(release / "plans", splits_dir=tmp_path, passes_dir=tmp_path)
    listed: set[bytes] = set()
    for batch in plan.batches:
        assert lists.digest(batch.chunk_list) == batch.chunk_list_digest
        for chunk in lists.chunks(batch.chunk_list):
            listed |= {one.path for one in lists.paths(batch.chunk_list, chunk.number)}
    assert listed - DIRECTORIES == FILES


def test_its_catalog_is_queried(release: Path, tmp_path: Path) -> None:
    (directory,) = (release / "catalogs").iterdir()
    record = open_closed(directory).record
    assert record.whole
    catalogs = ClosedCatalogs(directory.parent, lambda _: record)
    with CatalogQueryFiles(catalogs, Scratch(tmp_path)).open(directory.name) as queries:
        usages = {usage.tree.path: usage for usage in queries.usages(now_s=record.started_at_s).trees}
    assert {tree: usage.size_bytes for tree, usage in usages.items()} == {TREES[0]: 5010, TREES[1]: 3}


def test_its_manifest_proves_every_path(release: Path, tmp_path: Path) -> None:
    (manifest,) = (release / "manifests").glob("*/manifest.parquet")
    catalogs = ClosedCatalogs(tmp_path, lambda _: None)
    examples = ManifestDirectories(manifest.parent.parent, catalogs, Scratch(tmp_path)).examples(str(manifest))
    assert (examples.differences, examples.losses) == ((), ())
    proven: set[bytes] = set()
    for tree in TREES:
        with open_proofs(
            str(manifest), tree, archives={}, archive_directory=b"", skipped=(), newer=(), scratch=Scratch(tmp_path)
        ) as proofs:
            proven |= set(proofs.of_block(sorted(FILES | DIRECTORIES)))
    assert proven == FILES | DIRECTORIES
