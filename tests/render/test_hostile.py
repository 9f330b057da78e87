"""Whatever users call their files, every output shows it as text, and as nothing else."""

import base64
import hashlib
import io
import json
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from migrator.core.paths import percent_unescape, show
from migrator.plan.view import plan_document
from migrator.render.charts import svg
from migrator.render.document import Chart, clean
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import escape, to_json, to_markdown
from migrator.report.view import report_document
from migrator.report.view_records import verification_document
from migrator.report.view_status import status_document
from tests.support.facts import report, verification

HOSTILE = [
    b"<script>alert(1)</script>",
    b"</title></style><img src=x onerror=alert(1)>",
    b'" onmouseover="alert(1)',
    b"[red]not red[/red][link=http://evil]x[/link]",
    b"\x1b[31mred\x1b]0;title\x07\x9b31m",
    "\u202egpj.exe\u2066\u200b\ufeff".encode(),
    b"new\nline\rreturn\ttab\x0b\x0c\x85\x00",
    b"invalid \xff\xfe \xc3\x28 utf-8",
    b"a|b`c`*d*_e_~f~ [x](http://evil) ![i](http://evil/i.png)",
    b"# heading",
    b"- item",
    b"1. item",
    b"&lt;b&gt; &amp; {{ 7*7 }} {% raw %}",
    b"-rf $(reboot) `reboot` %41%",
    b"www.evil.example http://evil.example a@evil.example",
    b"back\\slash",
]


def text_of(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def assert_safe_text(text: str) -> None:
    for character in text:
        assert character == "\n" or unicodedata.category(character)[0] != "C", hex(ord(character))


class Page(HTMLParser):
    """What a browser would make of a page: its tags with attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def html_is_safe(page: Page) -> None:
    allowed = {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "h1", "h2", "p", "dl", "dt"),
        *("dd", "div", "progress", "figure", "figcaption", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *(
            "details",
            "summary",
            "nav",
            "ul",
            "li",
            "a",
            "footer",
            "svg",
            "desc",
            "line",
            "text",
            "path",
            "circle",
            "rect",
        ),
    }
    for tag, attributes in page.tags:
        assert tag in allowed
        assert not {key for key in attributes if key.startswith("on") or key in ("src", "style")}
        # Only the table of contents links, within the page.
        assert re.fullmatch(r"#section-\d+", attributes.get("href") or "#section-0")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.guarantee("names")
class TestHostileNames:
    def test_in_html(self, name: bytes) -> None:
        text = to_html(report_document(report(name, text_of(name))))
        page = Page(text)
        html_is_safe(page)
        assert_safe_text(text)
        # The name is there, as itself: as a path, and as a user.
        assert any(show(name) == data for data in page.text)
        assert any(clean(text_of(name)) == data for data in page.text)

    def test_in_the_terminal(self, name: bytes) -> None:
        stream = io.StringIO()
        console = Console(file=stream, width=4000, force_terminal=True, color_system=None, highlight=False)
        facts = report(name, text_of(name))
        print_document(console, report_document(facts))
        print_document(console, status_document(facts.status))
        assert facts.plan is not None
        print_document(console, plan_document(facts.plan))
        written = stream.getvalue()
        # Without colours rich still sets bold: its own sequences are taken away, and no other may be left.
        assert_safe_text(re.sub(r"\x1b\[[0-9;]*m", "", written) if "\x1b" not in show(name) else written)
        assert show(name) in written
        assert clean(text_of(name)) in written

    def test_in_markdown(self, name: bytes) -> None:
        text = to_markdown(report_document(report(name, text_of(name))))
        assert_safe_text(text)
        tokens = MarkdownIt("gfm-like", {"linkify": False}).enable("table").parse(text)
        inline = [child for token in tokens for child in token.children or ()]
        kinds = {token.type for token in inline}
        assert kinds <= {"text", "text_special", "strong_open", "strong_close", "code_inline", "softbreak"}
        assert "html_block" not in {token.type for token in tokens}
        shown = ["".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"]
        assert show(name).strip() in shown
        assert clean(text_of(name)).strip() in shown
        # Every row of every table has as many cells as its head.
        marks = {"table_open": "T", "th_open": "c", "td_open": "c", "tr_close": "|"}
        for table in "".join(marks.get(token.type, "") for token in tokens).split("T")[1:]:
            assert len(set(table.removesuffix("|").split("|"))) == 1

    def test_in_json(self, name: bytes) -> None:
        text = to_json(report(name, text_of(name)))
        assert text.isascii()
        assert_safe_text(text)
        parsed = json.loads(text)
        assert percent_unescape(parsed["status"]["trees"][0]["tree"]["path"]) == name
        assert percent_unescape(parsed["status"]["attention"][0]["problem"]["path"]) == name
        text.encode("utf-8")
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")

    def test_in_a_verification(self, name: bytes) -> None:
        html_is_safe(Page(to_html(verification_document(verification(text_of(name))))))


@given(st.binary(min_size=1, max_size=80).filter(lambda name: name.strip() == name))
def test_any_name_is_one_text_in_markdown(name: bytes) -> None:
    shown = show(name)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"| a |\n| --- |\n| {escape(shown)} |\n")
    cells = [token for token in tokens if token.type == "inline"]
    assert len(cells) == 2
    assert "".join(child.content for child in cells[1].children or ()) == shown.strip()
    assert {child.type for child in cells[1].children or ()} <= {"text", "text_special"}


@given(st.text(alphabet=st.characters(), max_size=60))
def test_clean_text_has_no_control_characters(text: str) -> None:
    assert clean(text).isprintable()


class TestHtml:
    def test_fetches_nothing_and_runs_nothing(self) -> None:
        text = to_html(report_document(report()))
        page = Page(text)
        html_is_safe(page)
        policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
        assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        assert "http://" not in text
        assert "https://" not in text
        assert "url(" not in style.group(1)
        assert "prefers-color-scheme: dark" in style.group(1)
        assert "@page" in style.group(1)

    def test_charts_have_words_units_and_ids_of_their_own(self) -> None:
        page = Page(to_html(report_document(report())))
        ids = [a["id"] for _, a in page.tags if "id" in a]
        assert len(ids) == len(set(ids))
        charts = [a for tag, a in page.tags if tag == "svg"]
        assert len(charts) == 5
        assert [a.get("class") for tag, a in page.tags if tag == "details"].count("figures") == len(charts)
        for chart in charts:
            assert chart["role"] == "img"
            assert set(str(chart["aria-labelledby"]).split()) <= set(ids)
        text = " ".join(page.text)
        assert "time (UTC)" in text
        assert "planned: 1.5 KiB" in text

    def test_every_table_has_heads(self) -> None:
        page = Page(to_html(report_document(report())))
        assert all(a.get("scope") == "col" for tag, a in page.tags if tag == "th")
        assert [tag for tag, _ in page.tags].count("table") == [tag for tag, _ in page.tags].count("thead")


class TestChart:
    def test_draws_one_bar_per_span_and_stays_inside(self) -> None:
        chart = Chart(title="t", summary="s", points=tuple((1e3 + 60 * at, 1e6 * at) for at in range(50)), span_s=60.0)
        text = str(svg(chart, "c"))
        path = re.search(r'class="bars" d="([^"]*)"', text)
        assert path is not None
        assert path.group(1).count("Z") == 50
        heights = [float(y) for y in re.findall(r"V([0-9.]+)H", path.group(1))]
        assert heights == sorted(heights, reverse=True)
        assert all(26 <= y <= 254 for y in heights)

    @pytest.mark.parametrize("points", [((5.0, 0.0),), ((5.0, 1e18),), ((5, 3), (5, 4)), ((0, 1), (4e9, 2))])
    def test_odd_series_are_drawn(self, points: tuple[tuple[float, float], ...]) -> None:
        for span_s in (None, 5.0):
            text = str(svg(Chart(title="t", summary="s", points=points, span_s=span_s), "c"))
            assert "nan" not in text
            assert text.count("<text") < 40
