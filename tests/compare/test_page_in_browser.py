"""The page in headless Chromium: sort, filter, hover, colours, a row's config; no console error, no request; 1,000 runs.

Needs a browser, which pip does not install: `apt-get install chromium`; and playwright, which `pip install -e '.[dev]'` does.
Without either these tests are skipped.
"""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compare import made
from tests.compare.test_page import EVIL
from torchlite.compare import page
from torchlite.compare.report import Asked, report

pytestmark = pytest.mark.slow
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Where a Chromium is; skips the test where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH: apt-get install chromium")
    return found


class Opened:
    """A page in the browser, with everything it complained about or asked for."""

    def __init__(self, tab) -> None:
        self.tab = tab
        self.complaints: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> float:
        """Seconds until everything is drawn."""
        started = time.perf_counter()
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("body[data-drawn]", timeout=60_000)
        return time.perf_counter() - started

    def column(self, index: int) -> list[str]:
        """Texts of a column, in the order of the rows that are shown."""
        script = "i => [...document.querySelectorAll('#rows tbody tr')].filter(r => !r.hidden).map(r => r.cells[i].textContent)"
        return self.tab.evaluate(script, index)

    def settled(self, do) -> float:
        """Seconds from what `do` does until the charts follow."""
        before = self.tab.evaluate("document.body.dataset.drawn")
        started = time.perf_counter()
        do()
        self.tab.wait_for_function("before => document.body.dataset.drawn !== before", arg=before, timeout=60_000)
        return time.perf_counter() - started


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser) -> Iterator[Opened]:
    tab = browser.new_page(viewport={"width": 1400, "height": 1000})
    made_here = Opened(tab)
    yield made_here
    tab.close()
    assert made_here.complaints == []
    assert [url for url in made_here.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def write(root: Path, **asked: object) -> Path:
    path = root.parent / "page.html"
    path.write_text(page.page(report([str(root)], Asked(**asked))), encoding="utf-8")  # type: ignore[arg-type]
    return path


def test_a_sweep_is_sorted_filtered_and_opened(opened: Opened, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=5)
    opened.open(write(tmp_path / "s", baseline="optimizer=sgd optimizer.lr=0.1"))
    tab = opened.tab
    assert opened.column(1)[0] == "* adamw" and len(opened.column(1)) == 6
    tab.click("thead button:text-is('optimizer.lr')")
    assert [float(text) for text in opened.column(2)] == [0.001, 0.001, 0.003, 0.01, 0.01, 0.1]
    tab.click("thead button:text-is('optimizer.lr')")
    assert [float(text) for text in opened.column(2)] == [0.1, 0.01, 0.01, 0.003, 0.001, 0.001]
    opened.settled(lambda: tab.fill("#search", "sgd"))
    assert opened.column(1) == ["sgd", "sgd"] and tab.inner_text("#count") == "2 of 6 rows"
    opened.settled(lambda: tab.fill("#search", ""))
    opened.settled(lambda: tab.fill("input[aria-label='filter optimizer.lr']", "<=0.003"))
    assert sorted(opened.column(1)) == ["* adamw", "adamw", "rmsprop"]
    opened.settled(lambda: tab.click("#clear"))
    assert len(opened.column(1)) == 6
    tab.click("#rows tbody tr:nth-child(1)")
    assert tab.is_visible("#detail") and "optimizer._target_: torch.optim.SGD" in tab.inner_text("#detail pre")
    assert tab.locator("#detail tr").count() == 6 and "s/sgd_lr-0.1_seed-4" in tab.inner_text("#detail table")
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#detail")


def test_charts_answer_the_mouse(opened: Opened, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=3)
    opened.open(write(tmp_path / "s"))
    tab = opened.tab
    bands = "document.getElementById('curves').data.filter(t => t.fill === 'toself').length"
    assert tab.evaluate(bands) == 6
    strokes = "document.getElementById('curves').data.filter(t => t.name).map(t => [t.line.color, t.line.dash])"
    assert [len(set(column)) for column in zip(*tab.evaluate(strokes), strict=True)] == [6, 6]
    assert tab.inner_text("#curve-hint") == "Bands: 95 % interval of the mean over 3 seeds."
    hover(tab, "curves", "t => t.name === 'adamw, lr 0.003'", 1)
    assert "adamw, lr 0.003 (n = 3)" in tab.text_content("#curves .hoverlayer")
    hover(tab, "against-cost", "t => t.mode === 'markers'", 0)
    assert "val/acc1" in tab.text_content("#against-cost .hoverlayer")
    for axis, last in (("epochs", 3), ("seconds", 1.875), ("updates", 30)):
        opened.settled(lambda axis=axis: tab.select_option("#curve-axis", axis))
        assert max(tab.evaluate("document.getElementById('curves').data.at(-1).x.filter(v => v !== null)")) == last
    opened.settled(lambda: tab.select_option("#curve-metric", "train/loss"))
    opened.settled(lambda: tab.click("#rows tbody tr:nth-child(1) input"))
    assert tab.evaluate(bands) == 5
    opened.settled(lambda: tab.uncheck("#fold"))
    assert tab.inner_text("#count") == "18 of 18 runs" and tab.evaluate(bands) == 0
    opened.settled(lambda: tab.check("#fold"))
    brush(opened, 0, 0.5)
    assert 0 < len(opened.column(1)) < 6 and len({text.strip("* ") for text in opened.column(1)}) == 2


def hover(tab, chart: str, trace: str, point: int) -> None:
    """Move the mouse onto a point of the first trace that fits."""
    script = """([id, point]) => {
        const chart = document.getElementById(id), found = chart.data.find(TRACE);
        chart.scrollIntoView({block: "center"});
        const at = chart.getBoundingClientRect(), {xaxis: x, yaxis: y} = chart._fullLayout;
        return [at.x + x._offset + x.c2p(found.x[point]), at.y + y._offset + y.c2p(found.y[point])];
    }"""
    x, y = tab.evaluate(script.replace("TRACE", trace), [chart, point])
    tab.mouse.move(x - 30, y - 30)
    tab.mouse.move(x, y, steps=4)
    tab.wait_for_selector(f"#{chart} .hoverlayer .hovertext", timeout=10_000)


def brush(opened: Opened, axis: int, upto: float) -> None:
    """Draw a box around the lower part of an axis of the parallel coordinates."""
    script = """([axis, upto]) => {
        const chart = document.getElementById("parallel"); chart.scrollIntoView({block: "center"});
        const at = chart.getBoundingClientRect(), {xaxis: x, yaxis: y} = chart._fullLayout;
        return [at.x + x._offset + x.c2p(axis), at.y + y._offset + y.c2p(-0.05), at.y + y._offset + y.c2p(upto)];
    }"""
    x, bottom, top = opened.tab.evaluate(script, [axis, upto])
    mouse = opened.tab.mouse
    mouse.move(x - 12, bottom)
    mouse.down()
    mouse.move(x + 12, top - 4, steps=5)
    opened.settled(mouse.up)


def test_hostile_names_do_nothing(opened: Opened, tmp_path: Path) -> None:
    image = "<img src=x onerror=alert(2)><a href='javascript:alert(3)'>link</a>"
    for index, name in enumerate((EVIL, image, "<b>bold</b>", "")):
        made.run(
            tmp_path / "s" / f"{index}{'<b>' * index}", 0.9 + index / 100, model__act=name, facts={"command": name}
        )
        made.run(tmp_path / "s" / f"failed{index}", result={"status": "failed", "failure": {"message": name}})
    opened.open(write(tmp_path / "s"))
    tab = opened.tab
    assert tab.locator("img, a[href^=javascript], #rows b, #detail b").count() == 0
    assert image in opened.column(1) and "<b>bold</b>" in opened.column(1)
    hover(tab, "against-cost", "t => t.mode === 'markers'", 1)
    assert "<b>" in tab.text_content("#against-cost .hoverlayer") or "<img" in tab.text_content(
        "#against-cost .hoverlayer"
    )
    tab.click("#rows tbody tr:nth-child(2)")
    assert tab.locator("#detail b, #detail img").count() == 0


def test_a_thousand_runs_stay_usable(opened: Opened, tmp_path: Path) -> None:
    """200 settings of five seeds: drawn in under 10 s, sorted in under 1 s, filtered in under 3 s on a busy machine."""
    draw = random.Random(0)
    for setting in range(200):
        rate = round(10 ** draw.uniform(-4, 0), 6)
        for seed in range(5):
            words = {"optimizer__lr": rate, "model__widths": [2 ** (4 + setting % 5)]}
            score, seconds = 0.9 + 0.05 * draw.random(), draw.uniform(1, 9)
            place, typed = tmp_path / "s" / f"{setting}-{seed}", ("optimizer.lr=1", "model.widths=[8]")
            made.run(place, score, list(made.OPTIMIZERS)[setting % 3], seed, seconds=seconds, typed=typed, **words)
    path = write(tmp_path / "s")
    assert path.stat().st_size < 20e6
    took = {"open": opened.open(path)}
    tab = opened.tab
    started = time.perf_counter()
    tab.click("thead button:text-is('optimizer.lr')")
    rates = [float(text) for text in opened.column(3)]
    took["sort"] = time.perf_counter() - started
    assert len(rates) == 200 and rates == sorted(rates)
    took["filter"] = opened.settled(lambda: tab.fill("#search", "adamw"))
    took["all"] = opened.settled(lambda: tab.fill("#search", ""))
    took["every run"] = opened.settled(lambda: tab.uncheck("#fold"))
    assert tab.inner_text("#count") == "1000 of 1000 runs"
    took["filter runs"] = opened.settled(lambda: tab.fill("#search", "sgd"))
    print({name: round(seconds, 2) for name, seconds in took.items()})
    assert took["open"] < 10 and took["sort"] < 1 and max(took.values()) < 10
