"""Checks of the files that configure a site: site.toml, the map of users, hooks, mail.ini. They need no mount and no host."""

import asyncio
import configparser
from pathlib import Path

from migrator.core.errors import Refused, UsageError
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.tasks import Blocking
from migrator.cutover.links import links_of
from migrator.cutover.rules_preflight import missing_freeze_hook
from migrator.doctor.model import ConfigurationCheck
from migrator.hooks.calls import Hooks, find_hooks
from migrator.hooks.rules import check_hooks
from migrator.scan.rules import parse_patterns, parse_user_map
from migrator.site.config import Site
from migrator.site.render import settings_of
from migrator.site.rules_links import check_switch_hooks

_MAIL_KEYS = frozenset({"domain", "from", "reports", "on_call", "send"})
"""As in docs/samples/mail.ini."""


async def check_configuration(site: Site, hooks: Hooks, blocking: Blocking) -> ConfigurationCheck:
    """All findings, and all settings. Raises nothing for a wrong file: that is a finding."""
    findings = [
        ok("site.toml", str(site.file)),
        *await asyncio.to_thread(_users, site),
        *await asyncio.to_thread(check_mail, site.file.with_name("mail.ini")),
        *await examine_hooks(site, hooks, blocking),
    ]
    return ConfigurationCheck(file=str(site.file), findings=tuple(findings), settings=settings_of(site))


def _users(site: Site) -> list[Finding]:
    findings: list[Finding] = []
    for name, globs in (("trees", site.users.trees), ("exclude", site.users.exclude)):
        check = f"[users] {name}"
        try:
            parse_patterns(globs, check)
        except UsageError as error:
            findings.append(failure(check, error.message, error.hint))
    if (file := site.users.map) is not None:
        try:
            with UsageError.of_files(f"{file} cannot be read", hint="write it, or remove [users] map from site.toml"):
                rows = parse_user_map(file.read_bytes())
        except UsageError as error:
            findings.append(failure("users map", error.message, error.hint or "correct this line"))
        else:
            findings.append(ok("users map", f"{file}: {len(rows):,} rows"))
    return findings


def check_mail(file: Path) -> list[Finding]:
    """mail.ini, from which the sample hooks take addresses; nothing if there is none."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with file.open(encoding="utf-8") as stream:
            parser.read_file(stream)
        if "mail" not in parser:
            return [failure("mail.ini", f"{file} has no section [mail]", "begin it with a line [mail]")]
        section = parser["mail"]
        send = section.getboolean("send", False)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, configparser.Error) as error:
        reason = " ".join(str(error).split())
        return [failure("mail.ini", f"{file} cannot be read: {reason}", "see docs/samples/mail.ini")]
    unknown = sorted(set(section) - _MAIL_KEYS)
    samples = sorted(key for key in set(section) & _MAIL_KEYS if section[key].endswith("example.org"))
    findings = [warning("mail.ini", f"unknown key {key}", f"remove it from {file}") for key in unknown]
    if send and samples:
        message = f"{', '.join(samples)}: still contains the addresses of the sample"
        findings.append(failure("mail.ini", message, "write your own, or set `send = no`"))
    return findings or [ok("mail.ini", f"{file}: mails are {'sent' if send else 'printed, not sent'}")]


async def examine_hooks(site: Site, hooks: Hooks, blocking: Blocking) -> list[Finding]:
    """The hooks, what prevents their calls, and hooks that site.toml requires and that are missing."""
    try:
        found = await find_hooks(hooks, blocking)
    except Refused as error:
        return [failure("hooks", error.message, error.hint)]
    cutover = site.cutover
    switch = [] if links_of(site) else check_switch_hooks(found, by_hook=cutover.switch == "hook")
    if cutover.switch != "hook":
        # Users may be copied long before they are moved.
        switch = [warning(one.check, one.message, one.fix) if one.fix else one for one in switch]
    missing = missing_freeze_hook(found.hooks) if cutover.freeze == "hook" else None
    freeze = [failure("hooks", missing, 'or set [cutover] freeze = "top" (docs/cutover.md)')] if missing else []
    return [*check_hooks(found, hooks.directory), *freeze, *switch]
