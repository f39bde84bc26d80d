"""The page of `ddprun report` in Chromium: it draws and reads what the files say, by the keyboard and the pointer, at any width."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browser import Browser
from running import LIMIT_S

from ddpgrad.launcher.cli.ddprun import main

pytestmark = pytest.mark.chromium
STEPS = 12
PLOT = "document.querySelector('.plot')"
READ = f"{PLOT}.nextElementSibling.textContent"
LOW = f"{PLOT}.querySelector('.view').getAttribute('viewBox').split(' ').map(Number)"


def row(step: int) -> dict[str, float]:
    return {"step": step, "loss": 3.25 / step, "tokens_per_s": 1000 + step}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with curves, and with a recording of two ranks from which timelines are drawn."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row(i)) + "\n" for i in range(1, STEPS + 1)))
    for rank in range(2):
        lines: list[object] = [
            {"job": "j", "attempt": 0, "procs": 2, "host": "a", "name": "a"}, {"clock": 0.0},
            {"memory": 5 << 20, "gpu": None, "at": 0.0},
        ]  # fmt: skip
        for step in range(4):
            parts = (("forward", 0.0, 0.3), ("backward", 0.3, 0.9), ("optimizer", 0.9, 1.0 + step**2 / 99))
            lines += [[rank, 0, kind, kind, step + began, step + ended, None] for kind, began, ended in parts]
            lines.append([rank, 1, "communication", "all_reduce", step + 0.5, step + 0.85, {"bytes": 4096}])
        (folder / f"timeline-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.browser(tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened
        assert opened.complaints == []


def address(folder: Path) -> str:
    return (folder / "report.html").as_uri()


def test_the_arrow_keys_read_the_numbers_of_the_file(page, run_folder):
    page.show(address(run_folder))
    for _ in range(20):  # links and tables come first
        page.press("Tab")
        if page.run("document.activeElement.classList.contains('plot')"):
            break
    read = []
    for _ in range(STEPS + 1):  # once too often
        page.press("ArrowRight")
        read.append(page.run(READ))
    said = [f"step {i} · loss {row(i)['loss']:.6g}" for i in range(1, STEPS + 1)]
    assert read == [*said, said[-1]]
    page.press("ArrowLeft")
    assert page.run(READ) == said[-2]
    page.press("Escape")
    assert page.run(READ) == "step"


def test_keys_and_a_drag_enlarge_and_what_is_drawn_moves_with_them(page, run_folder):
    page.show(address(run_folder))
    page.run(f"{PLOT}.focus()")
    assert page.run(LOW)[:3:2] == [0, 1000]
    page.press("+", "+")
    low, _, width, _ = page.run(LOW)
    assert width == pytest.approx(250) and low == pytest.approx(375)
    dots = f"[...{PLOT}.querySelectorAll('circle')].filter(c => c.style.display !== 'none')"
    frame = f"{PLOT}.querySelector('.frame').getBoundingClientRect()"
    assert 2 <= page.run(f"{dots}.length") <= 4
    assert page.run(f"{dots}.every(c => c.getBoundingClientRect().left >= {frame}.left - 3)")
    page.press("-")
    assert page.run(LOW)[2] == pytest.approx(500)
    page.press("0")
    assert page.run(LOW)[:3:2] == [0, 1000] and page.run(f"{dots}.length") == STEPS
    last = f"{dots}.at(-1).getBoundingClientRect()"
    assert page.run(f"({last}.left + {last}.right) / 2 - {frame}.right") == pytest.approx(0, abs=1)
    left, top, wide = page.run(f"(() => {{ const r = {frame}; return [r.left, r.top, r.width]; }})()")
    page.drag((left + wide / 4, top + 40), (left + wide / 2, top + 40))
    low, _, width, _ = page.run(LOW)
    assert low == pytest.approx(250, abs=2) and width == pytest.approx(250, abs=2)


def test_a_name_in_the_legend_switches_its_line(page, run_folder):
    page.show(address(run_folder))
    button = "document.querySelector('.legend button')"
    page.run(f"{button}.focus()")
    for pressed, seen in (("false", "hidden"), ("true", "visible")):
        page.press("Enter")
        assert page.run(f"{button}.getAttribute('aria-pressed')") == pressed
        assert page.run(f"getComputedStyle({PLOT}.querySelector('path[data-series]')).visibility") == seen


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_it_fits_any_width_and_can_be_read(page, run_folder, width, dark):
    page.show(address(run_folder), width, dark=dark)
    assert page.run("document.documentElement.scrollWidth") == width
    assert (
        page.run("document.querySelectorAll('.plot').length") == 6
    )  # two curves, steps, two timelines, memory
    outside = """[...document.querySelectorAll('h1, h2, figcaption, .plot, nav a')].filter(e => {
        const box = e.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth || !box.width; }).length"""
    assert page.run(outside) == 0
    # The contrast of text with what is behind it, by https://www.w3.org/TR/WCAG21/#contrast-minimum
    least = """(() => {
        const light = (c) => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (e) => { const c = getComputedStyle(e).backgroundColor;
            return c === 'rgba(0, 0, 0, 0)' && e.parentElement ? behind(e.parentElement) : c; };
        return Math.min(...[...document.querySelectorAll('p, th, td, a, small, h2, caption, summary, .readout, text')].map(e => {
            const style = getComputedStyle(e), ink = e.tagName === 'text' ? style.fill : style.color;
            const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05); }));
    })()"""
    assert page.run(least) >= 4.5


def test_a_served_page_renews_itself_and_keeps_what_the_reader_chose(page, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row(i)) + "\n" for i in (1, 2, 3)))
    command = [sys.executable, "-m", "ddpgrad.launcher", "report", tmp_path, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            page.show(server.stdout.readline().split()[1])
            page.run(f"{PLOT}.focus()")
            page.press("+", "ArrowRight")
            assert page.run(READ).startswith("step 2 ")
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(row(4)) + "\n")
            page.until("data.chart0[0].points.length === 4")
            assert page.run("document.activeElement.classList.contains('plot')")
            assert page.run(LOW)[0] > 0 and page.run("document.getElementById('live').textContent") == "live"
        finally:
            server.terminate()
            server.wait(LIMIT_S)
