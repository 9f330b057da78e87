"""Where keys stand in a TOML document."""

import tomllib

from migrator.config.lines import key_lines, line_of

DOCUMENT = '''\
# [not] a header
top = 1

[site]  # with a comment
name = "a = [b]"  # x = 3
text = """
[fake]
fake = "1" \\""" still text
"""
literal = \'\'\'
other = 1\'\'\'
list = [  # comment with "quote
  "one]", # ]
  'two',
]
after = {inner = 1, more = [1, 2]}
empty = ""

  [source.hosts."gl1.example.org"]
dotted.key = 1
"quoted key" = 2
[ spaced . name ]
last = 1'''


def test_each_key_is_found_on_its_line() -> None:
    tomllib.loads(DOCUMENT)
    assert key_lines(DOCUMENT) == {
        ("top",): 2,
        ("site",): 4,
        ("site", "name"): 5,
        ("site", "text"): 6,
        ("site", "literal"): 10,
        ("site", "list"): 12,
        ("site", "after"): 16,
        ("site", "empty"): 17,
        ("source", "hosts", "gl1.example.org"): 19,
        ("source", "hosts", "gl1.example.org", "dotted"): 20,
        ("source", "hosts", "gl1.example.org", "dotted", "key"): 20,
        ("source", "hosts", "gl1.example.org", "quoted key"): 21,
        ("spaced", "name"): 22,
        ("spaced", "name", "last"): 23,
    }


def test_what_stands_in_an_inline_table_has_the_line_of_its_statement() -> None:
    lines = key_lines("a = 1\nsite = {name = 'x'}\n")
    assert line_of(lines, ("site", "name")) == 2
    assert line_of(lines, ("nowhere",)) is None


def test_line_ends_of_other_systems_count_the_same() -> None:
    assert key_lines("[a]\r\nb = 1\r\n\r\nc = 2\r\n")["a", "c"] == 4
