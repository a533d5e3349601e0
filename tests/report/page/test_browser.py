"""Reports in a real browser: they load, they answer to hands and keys, in light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clove.report.page.read import read_run
from clove.report.page.render import LOOK, page_data, write_report
from tests.report.page.browser import DESKTOP, PHONE, chromium, opened
from tests.report.page.conftest import KINDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


pytest.importorskip("plotly", reason="no plotly here: pip install 'clove-fl[page]'")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def reports(runs: Path, comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of every kind of run, and of the comparison."""
    home = tmp_path_factory.mktemp("reports")
    for kind in (*KINDS, "own"):
        write_report([runs / kind], home / f"{kind}.html")
    write_report([comparison], home / "comparison.html")
    return home


@pytest.fixture
def page(browser: Browser, reports: Path) -> Iterator[Page]:
    with opened(browser, (reports / "clove.html").as_uri()) as found:
        yield found


def cells(page: Page, column: str) -> list[str]:
    """Return what the table of clients shows in a column."""
    place = page.eval_on_selector_all("#clients th", "all => all.map(one => one.dataset.column)")
    number = 1 + place.index(column)
    return page.locator(f"#clients tbody td:nth-child({number})").all_inner_texts()


def plotted(page: Page, section: str, place: int = 0) -> dict[str, Any]:
    """Return the first trace of a chart, as Plotly has it."""
    code = "all => { const [i, box] = all; return box[i].data[0]; }"
    handle = page.evaluate_handle(
        "([id, i]) => [i, document.querySelectorAll(`#${id} .chart`)]", [section, place]
    )
    found: dict[str, Any] = handle.evaluate(code)
    return found


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("kind", [*KINDS, "own", "comparison"])
def test_a_report_loads_without_complaint_and_fits_the_screen(
    browser: Browser, reports: Path, kind: str, size: tuple[int, int]
) -> None:
    with opened(browser, (reports / f"{kind}.html").as_uri(), size=size) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        drawn = page.locator("section:not([hidden]) .chart:visible")
        assert drawn.count() > 0
        assert drawn.count() == page.locator(".chart:visible .main-svg:first-child").count()


def test_all_sections_of_a_run_are_there(page: Page) -> None:
    ids = page.eval_on_selector_all("section:not([hidden])", "all => all.map(one => one.id)")
    assert ids == [
        *("curves", "vectors", "membership", "clusters", "clients", "traffic", "times", "settings")
    ]
    assert page.locator("nav a:visible").count() == len(ids)


def test_the_slider_moves_the_embedding_and_the_losses(page: Page, runs: Path) -> None:
    frames = page_data([runs / "clove"])["vectors"]["frames"]
    assert plotted(page, "vectors")["x"] == frames[-1]["x"]
    slider = page.get_by_role("slider", name="Round")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#vectors output").inner_text() == "round 1"
    assert plotted(page, "vectors")["x"] == frames[0]["x"]
    order = page_data([runs / "clove"])["order"]
    losses = dict(zip(frames[0]["clients"], frames[0]["losses"], strict=True))
    assert plotted(page, "vectors", 1)["z"] == [losses[client] for client in order]
    page.keyboard.press("ArrowRight")
    assert plotted(page, "vectors")["x"] == frames[1]["x"]


def test_playing_goes_through_the_rounds_to_the_last(page: Page) -> None:
    page.get_by_role("button", name="Play the rounds").click()
    assert page.locator("#vectors output").inner_text() == "round 1"
    page.wait_for_function("document.querySelector('#vectors output').textContent === 'round 4'")


def test_a_click_on_a_title_sorts_and_another_turns_it_round(page: Page, runs: Path) -> None:
    worst = [str(row[0]) for row in page_data([runs / "clove"])["clients"]["rows"]]
    assert cells(page, "client") == worst, "worst served first"
    title = page.locator("#clients th[data-column=client] button")
    title.click()
    assert cells(page, "client") == [str(number) for number in range(9)]
    title.press("Enter")
    assert cells(page, "client") == [str(number) for number in reversed(range(9))]
    assert page.locator("#clients th[aria-sort=descending]").inner_text().startswith("client")
    page.get_by_role("button", name="loss").click()
    losses = [float(text) for text in cells(page, "loss")]
    assert losses == sorted(losses)


def test_filters_leave_what_was_asked_for(page: Page, runs: Path) -> None:
    wanted = read_run(runs / "clove").assignment
    page.get_by_label("Cluster", exact=True).select_option("1")
    assert set(cells(page, "cluster")) == {"1"}
    assert len(cells(page, "client")) == (wanted == 1).sum()
    page.get_by_label("Cluster", exact=True).select_option("")
    page.get_by_label("Find").fill("4")
    assert cells(page, "client") == ["4"]
    assert page.locator("#clients [role=status]").inner_text().startswith("1 client of 9")


def test_dark_follows_the_system_and_a_switch(browser: Browser, reports: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    letters = "document.querySelector('.chart')._fullLayout.font.color"
    with opened(browser, (reports / "clove.html").as_uri(), dark=True) as page:
        dark, ink = page.evaluate(background), page.evaluate(letters)
        page.get_by_role("button", name="Dark colours").click()
        light, other = page.evaluate(background), page.evaluate(letters)
        assert light == "rgb(255, 255, 255)" != dark
        assert ink != other, "charts change with the page"
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.evaluate(background) == light, "what was chosen is kept"


def test_the_command_is_copied(browser: Browser, reports: Path, runs: Path) -> None:
    with opened(browser, (reports / "clove.html").as_uri()) as page:
        page.evaluate(
            "Object.defineProperty(navigator, 'clipboard', "
            "{value: {writeText: async (text) => { window.copied = text; }}})"
        )
        page.get_by_role("button", name="Copy the command").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("window.copied") == page_data([runs / "clove"])["command"]


def test_the_best_of_a_comparison_is_bold(browser: Browser, reports: Path) -> None:
    with opened(browser, (reports / "comparison.html").as_uri()) as page:
        assert page.locator("#table td b").count() > 0
        assert page.locator("#curves .chart:visible").count() == 2
        assert page.locator("#pareto .legend li").all_inner_texts() == [
            f"{mark} {name}" for mark, name in zip("●■▲", ("clove", "ifca", "fedavg"), strict=True)
        ]


@pytest.fixture(scope="module")
def many(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of runs that differ in several settings, with long values."""
    home = tmp_path_factory.mktemp("many")
    folders = []
    for number, kind in enumerate(("clove", "clove", "some", "ifca", "fedavg", "local")):
        folders.append(Path(shutil.copytree(runs / kind, home / f"{number}")))
        file = folders[-1] / "settings.toml"
        words = file.read_text().replace('variant = "paper"', f'variant = "{number}{"x" * 80}"')
        file.write_text(words.replace("batch_size = 10", f"batch_size = {10 + number}"))
    return write_report(folders, home / "many.html")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_long_names_are_neither_cut_nor_written_over_each_other(
    browser: Browser, many: Path, size: tuple[int, int]
) -> None:
    with opened(browser, many.as_uri(), size=size) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        names = page.locator("#table td.name")
        assert names.count() == 6
        for place in range(6):
            assert len(names.nth(place).inner_text()) < 40
            assert "xxxx" in str(names.nth(place).get_attribute("title"))
        assert page.locator("#apart tbody tr").count() == 6
        chart = page.locator("#pareto .chart .bg").first.bounding_box()
        assert chart is not None
        boxes = [one.bounding_box() for one in page.locator("#pareto .textpoint text").all()]
        shown = [box for box in boxes if box and box["width"]]
        assert shown, "there is room for some"
        for box in shown:
            assert chart["x"] <= box["x"]
            assert box["x"] + box["width"] <= chart["x"] + chart["width"]
        for one, other in combinations(shown, 2):
            assert (
                one["x"] + one["width"] <= other["x"]
                or other["x"] + other["width"] <= one["x"]
                or one["y"] + one["height"] <= other["y"] + 2
                or other["y"] + other["height"] <= one["y"] + 2
            )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_has_its_own_colours(browser: Browser, reports: Path, theme: str) -> None:
    with opened(browser, (reports / "clove.html").as_uri(), dark=theme == "dark") as page:
        drawn = plotted(page, "vectors")["marker"]["color"]
        assert set(drawn) <= set(LOOK["colours"][theme])  # type: ignore[index]


def test_lines_look_in_the_legend_as_in_the_chart(page: Page) -> None:
    code = "all => all.map(one => getComputedStyle(one).borderTopStyle)"
    styles = page.eval_on_selector_all("#traffic .swatch", code)
    assert styles == ["solid", "dashed", "dotted"]


def test_everything_to_be_used_has_a_name_for_screen_readers(page: Page) -> None:
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, select, [role=img], nav, section")]
        .filter((one) => one.offsetParent !== null)
        .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
            || one.labels?.length || one.textContent.trim()))
        .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_their_background(browser: Browser, reports: Path, dark: bool) -> None:
    """The contrast of text, soft text and links is at least 4.5 to 1 on page and cards."""
    with opened(browser, (reports / "clove.html").as_uri(), dark=dark) as page:
        ratios = page.evaluate(
            """(() => {
            const root = getComputedStyle(document.documentElement);
            const light = (name) => {
                const hex = root.getPropertyValue(name).trim().slice(1);
                const part = (i) => parseInt(hex.slice(i, i + 2), 16) / 255;
                const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                const [red, green, blue] = [0, 2, 4].map((i) => linear(part(i)));
                return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
            };
            const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            return ["--ink", "--soft", "--accent", "--good"].flatMap((ink) =>
                ["--paper", "--card"].map((ground) => ratio(light(ink), light(ground))));
            })()"""
        )
    assert min(ratios) >= 4.5
