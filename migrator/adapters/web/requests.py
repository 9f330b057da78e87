"""The head of a request, from bytes. Whatever is not plain HTTP/1.x is refused. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

MOST_HEAD_BYTES = 16384
_MOST_HEADERS = 100
_LINE = re.compile(rb"([A-Z]{1,20}) (\S{1,4096}) HTTP/1\.[01]", re.ASCII)
_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}):[ \t]*([\x20-\x7e\t]*)", re.ASCII)
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. Names of headers are in small letters; one that came twice has its values joined by commas."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class BadRequest(Exception):
    """The request is refused with this status, and a word for people."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def parse_head(head: bytes) -> Request:
    """A request, from everything before its empty line. Raises BadRequest."""
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadRequest(400, "that is no request of HTTP/1.1")
    method = line[1].decode("ascii")
    if method not in _READING:
        raise BadRequest(405, "only GET and HEAD: this server reads")
    if len(rest) > _MOST_HEADERS:
        raise BadRequest(431, "too many headers")
    headers: dict[str, str] = {}
    for raw in rest:
        header = _HEADER.fullmatch(raw)
        if header is None:
            raise BadRequest(400, "a header cannot be read")
        name, value = header[1].decode("ascii").lower(), header[2].decode("ascii").strip()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(400, "requests have no body here")
    return _request(method, line[2], headers)


def _request(method: str, raw_target: bytes, headers: Mapping[str, str]) -> Request:
    try:
        target = raw_target.decode("ascii")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise BadRequest(400, "the address cannot be read") from None
    if not target.startswith("/") or target.startswith("//"):
        raise BadRequest(400, "the address has to begin with one /")
    return Request(method=method, path=parts.path, query=query, headers=headers)
