"""Who may read: the names that a browser may have used, and the token."""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie

from migrator.adapters.web.requests import BadRequest, Request

TOKEN_PARAMETER = "token"
_COOKIE = "migrator_access"
_BEARER = "bearer "


class Access:
    """What a request has to show. Without a token everybody may read who comes by one of the names.

    A page of a stranger that lets its own name lead to this address (DNS rebinding) sends that name as `Host`: only `localhost`,
    `names`, and addresses in figures are answered; of these, where only this machine is served, its own alone.
    """

    def __init__(self, *, names: Collection[str], token: str | None, loopback: bool, port: int) -> None:
        self._names = {name.lower().rstrip(".") for name in names} | {"localhost"}
        self._loopback = loopback
        self._token = None if token is None else token.encode()
        # Cookies do not know ports: two servers of one machine must not take each other's.
        self._cookie = f"{_COOKIE}_{port}"
        # What a browser keeps is not the token, and is worth nothing once this process has ended.
        self._pass = "" if token is None else hmac.digest(secrets.token_bytes(32), token.encode(), hashlib.sha256).hex()

    def check_host(self, request: Request) -> None:
        """Raises BadRequest where the request came by a name that is not this server's."""
        host = request.headers.get("host", "")
        if not self._is_ours(_without_port(host)):
            raise BadRequest(421, "this server has no such name: use its address, or start it with --name")

    def _is_ours(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return host.lower().rstrip(".") in self._names
        return address.is_loopback if self._loopback else True

    def may_read(self, request: Request) -> bool:
        """Whether it shows the token, or the cookie that was given for it."""
        if self._token is None:
            return True
        given = request.headers.get("authorization", "")
        if given[: len(_BEARER)].lower() == _BEARER and self._is_token(given[len(_BEARER) :].strip()):
            return True
        try:
            morsel = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), self._pass.encode())

    def cookie_for(self, request: Request) -> str | None:
        """The cookie for whoever names the token in the address; None for everybody else."""
        given = request.query.get(TOKEN_PARAMETER)
        if self._token is None or given is None or not self._is_token(given):
            return None
        # Lax and not Strict: a link in a mail read on the web has to work; nothing here changes anything.
        return f"{self._cookie}={self._pass}; HttpOnly; SameSite=Lax; Path=/"

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
