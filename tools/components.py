"""The list of components of the packages (SBOM), as CycloneDX: libraries of the installed tree, with hashes of the lock.

The compiled program holds glibc and xxHash, which the machine of the build has as packages of its distribution.
"""

import datetime as dt
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def list_components(
    libraries: Path,
    locked: Mapping[str, tuple[str, frozenset[str]]],
    compiled_in: Sequence[str],
    made: dt.datetime,
) -> str:
    """The document. `compiled_in` are packages of Debian. Raises `ValueError` if `libraries` (a site-packages) holds what the lock
    does not name.
    """
    licenses = LicenseFactory()
    found: dict[str, Distribution] = {
        canonicalize_name(each.name): each for each in distributions(path=[str(libraries)])
    }
    program = _component(found.pop("migrator"), licenses, ComponentType.APPLICATION, frozenset())
    components: dict[str, Component] = {}
    for name, distribution in sorted(found.items()):
        version, hashes = locked.get(name, ("", frozenset()))
        if version != distribution.version:
            raise ValueError(f"{name} {distribution.version} is not what the lock names ({version or 'nothing'})")
        components[name] = _component(distribution, licenses, ComponentType.LIBRARY, hashes)
    parts = [_of_distribution(name) for name in compiled_in]
    bom = Bom(components=[*components.values(), *parts])
    bom.metadata.component = program
    bom.metadata.timestamp = made
    for name, component in components.items():
        bom.register_dependency(
            component, [components[needed] for needed in _needs(found[name]) if needed in components]
        )
    bom.register_dependency(program, [*components.values(), *parts])
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _needs(distribution: Distribution) -> list[str]:
    needs = [Requirement(line) for line in distribution.requires or ()]
    return [
        canonicalize_name(need.name) for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
    ]


def _component(
    distribution: Distribution, licenses: LicenseFactory, kind: ComponentType, hashes: frozenset[str]
) -> Component:
    """Hashes are those of every file of this version: the packages of each machine have one of them."""
    name = canonicalize_name(distribution.name)
    named = license_of(distribution)
    return Component(
        type=kind,
        name=name,
        version=distribution.version,
        bom_ref=f"{name}=={distribution.version}",
        purl=PackageURL("pypi", name=name, version=distribution.version),
        description=distribution.metadata["Summary"],
        licenses=[licenses.make_from_string(named)] if named else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in sorted(hashes)],
    )


def license_of(distribution: Distribution) -> str:
    """The licence that the metadata states; empty if they state none."""
    metadata = distribution.metadata
    stated = metadata["License-Expression"] or _of_classifiers(metadata.get_all("Classifier") or [])
    return stated or metadata["License"] or ""


def _of_classifiers(classifiers: list[str]) -> str | None:
    named = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: OSI Approved :: ")]
    return named[0] if named else None


def _of_distribution(name: str) -> Component:
    asked = ["dpkg-query", "--show", "--showformat=${Version}", name]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"deb:{name}@{version}",
        purl=PackageURL("deb", namespace="debian", name=name, version=version),
    )
