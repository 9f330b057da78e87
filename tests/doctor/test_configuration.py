"""`config check`: findings about the files that configure a site, and the settings in force."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.site.config import SECTIONS
from tests.support.cli_site import Site

MAP = 'map = "users.csv"\n'


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(directory=tmp_path, source=tmp_path / "source", target=tmp_path / "target")
    made.write()
    return made


def checked(site: Site, code: int = 0) -> Any:
    done = site.call("config", "check", "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def failures(document: Any) -> list[str]:
    return [one["check"] for one in document["findings"] if one["status"] == "failure"]


def test_a_site_whose_mounts_do_not_exist_is_checked_and_nothing_is_made(site: Site) -> None:
    before = sorted(site.directory.rglob("*"))
    document = checked(site)
    assert not failures(document)
    assert sorted(site.directory.rglob("*")) == before


def test_every_key_is_listed_with_its_value_and_meaning(site: Site) -> None:
    site.write(more='[governor]\nmax_load = 3.5\n\n[source.hosts.gl1]\nssh = "root@gl1"\n\n[cutover]\nretain = "36h"\n')
    settings = {(one["section"], one["key"]): one for one in checked(site)["settings"]}
    wanted = {(section.header, key.name) for section in SECTIONS if not section.parent for key in section.keys}
    assert wanted <= set(settings)
    assert all(one["meaning"] for one in settings.values())
    values = {place: one["value"] for place, one in settings.items() if not one["is_default"]}
    assert values["[transfer]", "reserve"] == '"1MiB"'
    assert values["[governor]", "max_load"] == "3.5"
    assert values["[cutover]", "retain"] == '"36h"'
    assert values["[users]", "trees"] == '["home/*"]'
    assert values['[source.hosts."gl1"]', "ssh"] == '"root@gl1"'
    assert ("[site]", "state_dir") not in values


def not_executable(site: Site) -> None:
    hook = site.directory / "hooks" / "pre-batch.d" / "10-own"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o644)


def unknown_stage(site: Site) -> None:
    (site.directory / "hooks" / "pre-lunch.d").mkdir(parents=True)


def mail(text: str) -> Callable[[Site], None]:
    def write(site: Site) -> None:
        site.file.with_name("mail.ini").write_text(text)

    return write


def users(text: str | None) -> Callable[[Site], None]:
    def write(site: Site) -> None:
        site.file.write_text(site.file.read_text().replace("[users]\n", f"[users]\n{MAP}"))
        if text is not None:
            site.file.with_name("users.csv").write_text(text)

    return write


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (not_executable, "hooks"),
        (unknown_stage, "hooks"),
        (mail("send = yes\n"), "mail.ini"),
        (mail("[post]\nsend = yes\n"), "mail.ini"),
        (mail("[mail]\nsend = perhaps\n"), "mail.ini"),
        (mail("[mail]\nsend = yes\nreports = storage-reports@example.org\n"), "mail.ini"),
        (users(None), "users map"),
        (users("path,owner\n"), "users map"),
        (lambda site: site.write(trees='["home/**"]'), "[users] trees"),
    ],
)
def test_a_file_that_would_fail_later_is_a_failure(site: Site, change: Callable[[Site], None], check: str) -> None:
    change(site)
    assert failures(checked(site, code=2)) == [check]


def test_mails_that_are_only_printed_may_have_sample_addresses(site: Site) -> None:
    mail("[mail]\nreports = storage-reports@example.org\nfrom = storage@example.org\n")(site)
    assert not failures(checked(site))


def test_a_misspelt_key_of_mail_ini_is_a_warning(site: Site) -> None:
    mail("[mail]\nreport = me@site.test\n")(site)
    found = [one for one in checked(site)["findings"] if one["check"] == "mail.ini"]
    assert [one["status"] for one in found] == ["warning"]


@pytest.mark.parametrize(("text", "code"), [("[site\n", 2), ("", 2), ('[site]\nnme = "x"\n', 2), (None, 2)])
def test_a_wrong_or_missing_site_file_is_an_error_of_usage(site: Site, text: str | None, code: int) -> None:
    site.file.unlink()
    if text is not None:
        site.file.write_text(text)
    assert "error" in checked(site, code)
