"""Figures that people in this field published, to stand beside one's own. Sources are named by author and year."""

from dataclasses import dataclass

from migrator.domain.benchmark import SuiteName, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Who measured, when, and on what. `systems` are the columns of its figures."""

    key: str
    title: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One published test: `figures` are system and figure, as they were printed, in `unit`; several are repeated runs.

    `work` says what was done there, at scale 1. `hosts` is how many clients worked at once.
    """

    publication: str
    suite: SuiteName
    step: str
    work: str
    unit: Unit
    figures: tuple[tuple[str, str], ...]
    hosts: int = 1


PUBLICATIONS = {
    publication.key: publication
    for publication in (
        Publication(
            key="A",
            title="H. Mangalam, University of California, Irvine, 2013-14",
            setting="FhGFS against Gluster in production, 340 TB, 4 servers, XFS on RAID6, QDR InfiniBand; caches dropped "
            "with `echo 1`. FhGFS1: old hardware. FhGFS2: new servers. FhGFS3: the same, tuned, two metadata servers. "
            "Glfs1: production, loaded. Glfs2: the hardware of FhGFS2. DASR5: six local disks as RAID5.",
        ),
        Publication(
            key="B",
            title="I. Gaponenko and L. C. Ho, SLAC PCDS/LCLS, 2012",
            setting="Lustre against Gluster, 1 PB, 5 servers, RAID6 13+2, QDR InfiniBand; parallel rates by iostat on the servers.",
        ),
        Publication(
            key="C",
            title="M. Marinov, SiteGround, about 2018",
            setting="file systems for hosting, 10 Gb Ethernet and 40 Gb InfiniBand, SSDs.",
        ),
        Publication(
            key="D",
            title="a web farm, by the name of mi, 2013",
            setting="Gluster 3.4.1, replica 2, against a local SAN and NFS, through a web server.",
        ),
        Publication(
            key="E",
            title="G. Molan and others, Comtrade, about 2021",
            setting="each file system on one server, clients with 2 cores, MD5 checked, caches cleared, 11 to 52 iterations; MB/s "
            "are averages on Linux.",
        ),
    )
}


def _a(suite: SuiteName, step: str, work: str, figures: str, *, hosts: int = 1) -> Reference:
    return _of("A", suite, step, work, Unit.SECONDS, figures, hosts)


def _of(  # noqa: PLR0917 - a table
    publication: str, suite: SuiteName, step: str, work: str, unit: Unit, figures: str, hosts: int = 1
) -> Reference:
    """`figures`: `SYSTEM = FIGURE[, FIGURE]; ...`."""
    pairs = (one.strip().rpartition("= ") for one in figures.split(";"))
    return Reference(
        publication=publication,
        suite=suite,
        step=step,
        work=work,
        unit=unit,
        figures=tuple((system.strip(), figure.strip()) for system, _, figure in pairs),
        hosts=hosts,
    )


REFERENCES = (
    _a(
        SuiteName.STREAMING,
        "parallel-write",
        "10 x 2 GB on each host",
        "FhGFS1 = 1005±0.65, 971±2.2; FhGFS2 = 94±5.7, 128±0.1, 124±0.06; FhGFS3 = 81±0.71, 89±0.5, 88.6±0.3, 84.1±0.27; "
        "Glfs1 = 130±56, 160±24, 115±7.8, 157±7.7; Glfs2 = 58.9±3.8, 79.6±4.7",
        hosts=9,
    ),
    _of(
        "B",
        SuiteName.STREAMING,
        "files-write",
        "40 files by 20 hosts (80 files: Gluster 5661, tuned 7439)",
        Unit.BYTES_PER_S,
        "Gluster = 8130 MB/s; Lustre = 8000+ MB/s",
        20,
    ),
    _of(
        "B",
        SuiteName.STREAMING,
        "files-read",
        "40 files by 20 hosts (80 files: Gluster 9057, tuned 9313)",
        Unit.BYTES_PER_S,
        "Gluster = 7160 MB/s; Lustre = 10000+ MB/s",
        20,
    ),
    _of(
        "B",
        SuiteName.STREAMING,
        "one-write",
        "one stream",
        Unit.BYTES_PER_S,
        "Gluster 10 GbE = 569 MB/s; Gluster QDR = 927 MB/s",
    ),
    _of(
        "B",
        SuiteName.STREAMING,
        "one-read",
        "one stream",
        Unit.BYTES_PER_S,
        "Gluster 10 GbE = 555 MB/s; Gluster QDR = 726 MB/s",
    ),
    _a(
        SuiteName.UNTAR,
        "many-small",
        "a kernel tarball, 80 MB, 46,000 files",
        "FhGFS1 = 435; FhGFS2 = 107; FhGFS3 = 79; Glfs1 = 1010; Glfs2 = 181; DASR5 = 109",
    ),
    _a(SuiteName.UNTAR, "many-small", "the same, 9 hosts at once", "FhGFS2 = 430±6.8", hosts=9),
    _a(
        SuiteName.UNTAR,
        "fewer-larger",
        "2 GB, 30,000 files",
        "FhGFS1 = 948; FhGFS2 = 99; FhGFS3 = 82; Glfs1 = 699; Glfs2 = 162; DASR5 = 176",
    ),
    _a(
        SuiteName.UNTAR,
        "fewer-larger",
        "the same, 9 hosts at once",
        "FhGFS1 = 4120±17; FhGFS2 = 326±3, 286±2.1, 278±2.6, 284±1.6, 285±2; FhGFS3 = 230±11, 237±11; "
        "Glfs1 = 2704±30, 1486±67, 2210±92; Glfs2 = 270±9",
        hosts=9,
    ),
    _a(
        SuiteName.SMALL_WRITES,
        "prints",
        "20 GB in prints of 100 characters (hosts not given)",
        "FhGFS2 = 94; FhGFS3 = 75; Glfs1 = 519; DASR5 = 137",
    ),
    _a(
        SuiteName.SMALL_WRITES,
        "one-write",
        "the same 20 GB in one print",
        "FhGFS2 = 154; FhGFS3 = 136; Glfs1 = 566; DASR5 = 219",
    ),
    _a(
        SuiteName.RECURSIVE,
        "grep",
        "`grep -ri` in a built kernel tree, 5.6 GB",
        "FhGFS1 = 793±14, 776±76; FhGFS2 = 558±5, 557±3.1; FhGFS3 = 500±29, 515±29; Glfs1 = 563±5.7; "
        "Glfs2 = 419±24.5, 365±9.6; DASR5 (NFS, cached) = 115±12.3",
        hosts=9,
    ),
    _a(
        SuiteName.RECURSIVE,
        "ls",
        "1,814 directories, 28,619 files",
        "FhGFS1 = 13; FhGFS2 = 14-15; FhGFS3 = 8.5; Glfs1 = 69-90; Glfs2 = 32-35; DASR5 = 0.5-0.6",
    ),
    _a(
        SuiteName.RECURSIVE,
        "du",
        "the same tree",
        "FhGFS1 = 13; FhGFS2 = 4; FhGFS3 = 2.7; Glfs1 = 62; Glfs2 = 30; DASR5 = 0.1",
    ),
    *(
        _of("B", SuiteName.CATALOG, step, work, Unit.SECONDS, f"Lustre = {lustre}; Gluster = {gluster}")
        for step, work, lustre, gluster in (
            ("make-directories", "10,000 subdirectories", "2.3", "72"),
            ("list-directories", "10,000 subdirectories", "1", "43"),
            ("remove-directories", "10,000 subdirectories", "73", "362"),
            ("make-files", "10,000 empty files, one process", "5.2", "54"),
            ("list-files", "10,000 files, `ls -al`", "0.22", "9"),
            ("open-files", "10,000 files without reading", "2.23", "2.90"),
            ("remove-files", "10,000 empty files", "6.73", "12.8"),
        )
    ),
    _of(
        "C",
        SuiteName.CATALOG,
        "make-files",
        "10,000 empty files",
        Unit.SECONDS,
        "local SSD = 7.030; MooseFS = 12.451; NFS on Ceph RBD = 16.947; OrangeFS = 40.574; Gluster = 108.904",
    ),
    _of(
        "C",
        SuiteName.CATALOG,
        "make-files",
        "10,000 empty files, by network",
        Unit.SECONDS,
        "MooseFS 10G = 10.4-10.7; MooseFS IPoIB = 9.5-9.7; Gluster 10G = 48.1-48.9; Gluster IPoIB = 40.6-41.8; "
        "Gluster RDMA = 31.7-31.8",
    ),
    _of(
        "C",
        SuiteName.CATALOG,
        "make-sized-files",
        "10,000 files of random size",
        Unit.SECONDS,
        "MooseFS 10G = 226.5-238.1; MooseFS IPoIB = 228.3-229.5; Gluster 10G = 473.8-477.7; Gluster RDMA = 532.2",
    ),
    _a(
        SuiteName.BUILD,
        "make-8",
        "linux 3.7.9, make -j8 bzImage (DASR5: 1 host)",
        "FhGFS1 = 1980±39, 2031±29; FhGFS2 = 1816±71, 1878±33; FhGFS3 = 1995±98.7; Glfs1 = 2636±105, 2624±91; "
        "Glfs2 = 1557±82, 1606±73; DASR5 = 126",
        hosts=9,
    ),
    _a(
        SuiteName.BUILD,
        "make-32",
        "the same, make -j32 (DASR5: 1 host)",
        "FhGFS2 = 936±5, 1103±6; Glfs1 = 2931±29, 3339±59, 3225±95; DASR5 = 65.5",
        hosts=9,
    ),
    _of(
        "D",
        SuiteName.LATENCY,
        "read-429",
        "429 bytes, 17 threads for 11 s, mean",
        Unit.MILLISECONDS,
        "local = 3.643; NFS = 6.801; Gluster = 22.41",
    ),
    _of(
        "D",
        SuiteName.LATENCY,
        "read-93347",
        "93,347 bytes, 17 threads for 11 s, mean",
        Unit.MILLISECONDS,
        "local = 15.34; NFS = 15.97; Gluster = 40.80",
    ),
    *(
        _of(
            "E",
            SuiteName.TRANSFER,
            step,
            work,
            Unit.BYTES_PER_S,
            "; ".join(
                f"{system} = {figure} MB/s"
                for system, figure in zip(
                    ("EOS xrdcp", "EOS FUSE", "GPFS", "CephFS", "HDFS"), figures.split(), strict=True
                )
            ),
        )
        for step, work, figures in (
            ("upload-small", "100 x 1 MB", "165.24 49.27 55.99 150.62 3.55"),
            ("download-small", "100 x 1 MB", "169.56 50.67 174.76 94.19 3.97"),
            ("upload-medium", "10 x 100 MB", "411.14 160.16 181.08 140.86 9.94"),
            ("download-medium", "10 x 100 MB", "412.94 206.36 322.89 31.49 9.37"),
            ("upload-large", "2 x 2,000 MB", "371.03 210.76 294.47 157.56 9.91"),
            ("download-large", "2 x 2,000 MB", "353.00 227.13 342.54 265.08 10.12"),
        )
    ),
)


def references_of(suite: SuiteName) -> tuple[Reference, ...]:
    """What was published of a suite."""
    return tuple(reference for reference in REFERENCES if reference.suite is suite)
