"""The report as people see it, in a real browser, offline: on a phone and on a desk, sorted by hand, printed."""

import pytest

from reports.html import page
from tests.reports.html.test_html import SIMULATED, failed
from tests.reports.synthetic import KIB, MIB, study

PAPER_WIDTH = 1047
"""Of A4, landscape, between margins of 10 mm, in CSS pixels."""

RECORDS = [
    *study(worlds=2, sizes=(KIB, 64 * KIB, 4 * MIB)),
    *SIMULATED,
    failed(reason="a very long reason that nobody broke into lines " * 12 + "x" * 300),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(RECORDS), encoding="utf-8")
    return path


class Opened:
    """A page, and what it said and asked for."""

    def __init__(self, browser, report, width, **options):
        self.said = []
        self.asked = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, offline=True, **options)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(report.as_uri())


@pytest.fixture
def opened(browser, report, request):
    found = Opened(browser, report, **request.param)
    yield found
    found.page.close()


def sideways(page):
    """By how much the page is wider than the window."""
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return int(wider)


BOTH = [{"width": 360}, {"width": 1280}]


@pytest.mark.slow
@pytest.mark.parametrize("opened", BOTH, indirect=True, ids=["phone", "desk"])
def test_the_page_fits_the_window_says_nothing_and_asks_for_nothing(opened, report):
    assert sideways(opened.page) <= 0
    assert opened.said == []
    assert opened.asked == [report.as_uri()]


@pytest.mark.slow
@pytest.mark.parametrize("opened", [{"width": 360}], indirect=True)
def test_wide_tables_scroll_in_their_own_boxes_and_the_first_column_stays_in_sight(opened):
    box = opened.page.locator("#measured .scroll", has_text="size (B)").first
    heads = box.locator("thead th")
    assert [heads.nth(number).inner_text() for number in range(3)] == ["size (B)", "algorithm", "time (us)"]
    right = "(cell, box) => box.getBoundingClientRect().right - cell.getBoundingClientRect().right"
    assert heads.nth(2).evaluate(right, box.element_handle()) >= 0, "size, algorithm and time are seen at once"
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.evaluate("box => { box.scrollLeft = 500 }")
    cell = box.locator("tbody tr").first.locator("th")
    inside = "(cell, box) => cell.getBoundingClientRect().left - box.getBoundingClientRect().left"
    assert abs(cell.evaluate(inside, box.element_handle())) <= 1
    assert sideways(opened.page) <= 0


CONTRASTS = """() => {
    const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const numbers = text => text.match(/[\\d.]+/g).map(Number);
    const found = {};
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const own = walk.currentNode.parentElement;
        if (!walk.currentNode.textContent.trim() || own.closest("svg, script, style")) continue;
        let behind = own, paper = [255, 255, 255];
        for (; behind; behind = behind.parentElement) {
            const colour = numbers(getComputedStyle(behind).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) { paper = colour; break; }
        }
        const [a, b] = [light(numbers(getComputedStyle(own).color)), light(paper)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found[own.tagName + "." + own.className] = ratio;
    }
    return found;
}"""
"""Texts of less contrast than WCAG 2 asks for at level AA."""


@pytest.mark.parametrize(
    "opened", [{"width": 1280, "color_scheme": one} for one in ("light", "dark")], indirect=True, ids=["light", "dark"]
)
def test_texts_have_the_contrast_of_level_aa(opened):
    assert opened.page.evaluate(CONTRASTS) == {}


@pytest.mark.parametrize("opened", BOTH, indirect=True, ids=["phone", "desk"])
def test_nothing_in_pictures_overlaps(opened):
    crossing = opened.page.evaluate(
        """() => {
            const found = [];
            for (const svg of document.querySelectorAll(".picture svg")) {
                const boxes = Array.from(svg.querySelectorAll("text")).map(one => one.getBoundingClientRect());
                boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
                    const across = a.left < b.right && b.left < a.right;
                    if (a.width && b.width && across && a.top < b.bottom && b.top < a.bottom)
                        found.push(svg.getAttribute("aria-label"));
                }));
                const frame = svg.getBoundingClientRect();
                if (boxes.some(a => a.left < frame.left - 1 || a.right > frame.right + 1)) found.push("cut");
            }
            return found;
        }"""
    )
    assert crossing == []


@pytest.mark.slow
@pytest.mark.parametrize("opened", [{"width": 1280}], indirect=True)
def test_a_click_on_a_header_sorts(opened):
    table = opened.page.locator("#measured table", has_text="size (B)").first
    place = table.locator("th").all_inner_texts().index("time (us)") + 1
    known = "cells => cells.map(cell => cell.dataset.v).filter(value => value !== undefined).map(Number)"
    header, before = table.locator(f"th:nth-child({place})"), table.inner_text()
    for press, order in ((lambda button: button.click(), 1), (lambda button: button.press("Enter"), -1)):
        press(header.get_by_role("button"))
        raw = table.locator(f"td:nth-child({place})").evaluate_all(known)
        assert header.get_attribute("aria-sort") == {1: "ascending", -1: "descending"}[order]
        assert raw == sorted(raw)[::order]
    assert len(raw) == 18
    assert (sorted(before), before == table.inner_text()) == (sorted(table.inner_text()), False)
    table.locator("th").get_by_role("button", name="algorithm").click()
    assert table.locator("th[aria-sort]").all_inner_texts() == ["algorithm"]
    texts = table.locator("td:nth-child(5)").all_inner_texts()
    assert texts == sorted(texts)


@pytest.mark.slow
@pytest.mark.parametrize("opened", [{"width": 1280}], indirect=True)
def test_what_has_no_figure_comes_last_either_way(opened):
    table = opened.page.locator("#measured table", has_text="ours/base").last
    place = table.locator("th").all_inner_texts().index("ours/base") + 1
    button = table.locator(f"th:nth-child({place})").get_by_role("button")
    for _ in range(2):
        button.click()
        texts = [text.strip() for text in table.locator(f"td:nth-child({place})").all_inner_texts()]
        filled = [bool(text) for text in texts]
        assert any(filled)
        assert filled == sorted(filled, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("opened", [{"width": 1280, "java_script_enabled": False}], indirect=True)
def test_all_can_be_read_without_scripts(opened):
    assert opened.page.locator("#measured td", has_text="one_shot").first.is_visible()
    assert opened.page.locator("#measured svg[role=img]").first.is_visible()
    opened.page.locator("#measured summary", has_text="Percentiles").first.click()
    assert opened.page.locator("#measured details td", has_text="one_shot").first.is_visible()


def test_it_opens_in_a_sandboxed_frame_without_scripts(browser, report):
    page = browser.new_page()
    page.set_content('<iframe sandbox="" width="800" height="600"></iframe>')
    page.locator("iframe").evaluate("(frame, text) => { frame.srcdoc = text }", report.read_text(encoding="utf-8"))
    assert page.frame_locator("iframe").locator(".verdict").inner_text().endswith("did not pass.")
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("opened", [{"width": PAPER_WIDTH}], indirect=True)
def test_print_cuts_nothing_and_folds_nothing(opened):
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert sideways(opened.page) <= 0
    cut = opened.page.evaluate(
        """width => Array.from(document.querySelectorAll("table, pre, svg[role=img], dl"))
            .filter(one => one.getBoundingClientRect().right > width + 0.5)
            .map(one => one.closest("section")?.id)""",
        PAPER_WIDTH,
    )
    assert cut == []
    assert opened.page.evaluate("document.querySelectorAll('details:not([open])').length") == 0


@pytest.mark.slow
def test_the_answer_is_on_the_first_screen(browser, report):
    opened = Opened(browser, report, 1280)
    for what in (".asked", ".verdict", ".side table", ".side svg[role=img]"):
        box = opened.page.locator(what).first.bounding_box()
        assert box["y"] + box["height"] <= 900, what
    opened.page.close()


@pytest.mark.slow
def test_many_lines_are_folded_on_a_phone_and_a_link_unfolds_them(browser, tmp_path):
    path = tmp_path / "many.html"
    sizes = tuple(KIB << power for power in range(8))
    path.write_text(page([one for dtype in ("bfloat16", "float16") for one in study(sizes=sizes, dtype=dtype)]))
    opened = Opened(browser, path, 390)
    groups = opened.page.locator("#measured details.group")
    assert [groups.nth(number).evaluate("one => one.open") for number in range(2)] == [True, False]
    tables = opened.page.locator("main .scroll")
    heights = [tables.nth(number).evaluate("one => one.getBoundingClientRect().height") for number in range(3)]
    assert max(heights) <= 0.85 * 900 + 1, "a long table scrolls in its box"
    opened.page.evaluate("location.hash = 'section-2'")
    opened.page.wait_for_function("document.querySelectorAll('#measured details.group[open]').length == 2")
    assert opened.page.locator("#section-2").is_visible()
    assert (sideways(opened.page), opened.said) == (0, [])
    opened.page.close()
