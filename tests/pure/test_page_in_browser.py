"""The report page in a real browser: nothing in the console, nothing wider than a phone, dark when asked for."""

from __future__ import annotations

import functools
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pure.page_examples import bench, nasty, run, search, subjects
from tfvolta.page.page import make_page

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")

# Measures the page in frames as wide as a phone: what is wider than the window, and how its folds and charts are.
_PROBE = """<!DOCTYPE html><title>probe</title><body><script>
const found = [];

addEventListener("load", () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow;
    for (const opened of page.querySelectorAll("details")) opened.open = true;
    const wide = [...page.querySelectorAll("body *")].filter(e => !e.closest(".scroll, pre, svg, .skip, thead")
        && e.getBoundingClientRect().right > view.innerWidth + 1).map(e => e.tagName + "." + e.className);
    const squeezed = [...page.querySelectorAll("caption, th, td, dd, p")].filter(e => e.textContent.length > 12
        && e.offsetWidth && e.offsetWidth < 50 && getComputedStyle(e).position !== "absolute").map(e => e.outerHTML);
    const seen = [...page.querySelectorAll("figure svg")].filter(e => view.getComputedStyle(e).display !== "none");
    found.push({width: view.innerWidth, scroll: page.documentElement.scrollWidth,
        wide: wide.slice(0, 5), squeezed: squeezed.slice(0, 5),
        charts: seen.length, all: page.querySelectorAll("figure svg").length,
        paper: view.getComputedStyle(page.body).backgroundColor, scripts: page.scripts.length});
  }
  const result = document.createElement("pre"); result.id = "result"; result.textContent = JSON.stringify(found);
  document.body.append(result);
});
</script>FRAMES</body>"""


def browse(folder: Path, page: str, *options: str) -> tuple[str, list[str]]:
    """The document after it was loaded, and what went to the console."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--log-level=0",
    ]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=4000",
        *options,
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@functools.cache
def page() -> str:
    here = Path("x")
    runs = (run("first"), run("second", 1), nasty().updated_with(run_id="nasty"))
    return make_page(subjects(*runs, searches=((here, search()),), benches=((here, bench()),)), "now", "0.1.0")


def test_the_console_stays_empty(tmp_path: Path) -> None:
    dom, console = browse(tmp_path, page())
    assert console == []
    assert "What each setting buys" in dom and "<script" not in dom
    _, noisy = browse(tmp_path, "<!DOCTYPE html><title>x</title><script>console.error('seen'); nothing.at.all</script>")
    assert len(noisy) == 2, "this is how an error would have shown"


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_follows_the_colour_scheme(dark: bool, tmp_path: Path) -> None:
    source = html.escape(page(), quote=True)
    frames = "".join(f'<iframe width="{width}" height="700" srcdoc="{source}"></iframe>' for width in (320, 360, 1280))
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    dom, _ = browse(tmp_path, _PROBE.replace("FRAMES", frames), *options)
    found = re.search(r'<pre id="result">(.*?)</pre>', dom)
    assert found is not None
    for seen in json.loads(html.unescape(found[1])):
        assert seen["scroll"] <= seen["width"] and seen["wide"] == seen["squeezed"] == []
        assert seen["charts"] * 2 == seen["all"] and seen["scripts"] == 0
        assert seen["paper"] == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
