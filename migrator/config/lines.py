"""On which line of a TOML document each table and key stands: `tomllib` does not tell."""

from collections.abc import Iterator, Mapping

Name = tuple[str, ...]


def key_lines(text: str) -> Mapping[Name, int]:
    """The line, from 1, of every table header and key of a *valid* document, by its full dotted name.

    Keys inside inline tables are not listed; ask `line_of` for them, which gives the statement's line.
    """
    found: dict[Name, int] = {}
    table: Name = ()
    for start, statement in _statements(text):
        line = text.count("\n", 0, start) + 1
        if statement.startswith("["):
            table = _dotted(statement.lstrip("[ \t"))
            found.setdefault(table, line)
        else:
            name = _dotted(statement)
            for length in range(1, len(name) + 1):
                found.setdefault(table + name[:length], line)
    return found


def line_of(lines: Mapping[Name, int], name: Name) -> int | None:
    """The line of a name, or of the nearest thing around it."""
    for length in range(len(name), 0, -1):
        if name[:length] in lines:
            return lines[name[:length]]
    return None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header or `key = value`, with the place where it begins; values may go over several lines."""
    place = 0
    while place < len(text):
        if text[place] in " \t\r\n":
            place += 1
        elif text[place] == "#":
            place = _line_end(text, place)
        else:
            end = _statement_end(text, place)
            yield place, text[place:end]
            place = end


def _statement_end(text: str, place: int) -> int:
    depth = 0
    while place < len(text):
        character = text[place]
        if character in "\"'":
            place = _string_end(text, place)
            continue
        if character == "#":
            place = _line_end(text, place)
            continue
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "\n" and depth <= 0:
            return place
        place += 1
    return place


def _string_end(text: str, place: int) -> int:
    quote = text[place]
    fence = quote * 3 if text.startswith(quote * 3, place) else quote
    place += len(fence)
    while place < len(text):
        if text[place] == "\\" and quote == '"':
            place += 2
        elif text.startswith(fence, place):
            place += len(fence)
            # Up to two quotes may stand before the closing three.
            while len(fence) == 3 and text.startswith(quote, place):
                place += 1
            return place
        else:
            place += 1
    return place


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _dotted(text: str) -> Name:
    """The dotted key at the beginning of the text."""
    parts: list[str] = []
    place = 0
    while place < len(text):
        while text[place : place + 1] in (" ", "\t", "."):
            place += 1
        if text[place : place + 1] in ("", "=", "]", "\n"):
            break
        if text[place] in "\"'":
            end = _string_end(text, place)
            parts.append(text[place + 1 : end - 1])
        else:
            end = place
            while text[end : end + 1] not in ("", " ", "\t", ".", "=", "]"):
                end += 1
            parts.append(text[place:end])
        place = end
    return tuple(parts)
