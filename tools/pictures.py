"""Draws the pictures of the docs from what the program really prints: terminals, a timeline, the rooms.

    python -m tools.pictures            writes docs/images/*.svg
    python -m tools.pictures --check    fails where a picture of a terminal is no longer what the program prints
    python -m tools.pictures --site DIR writes docs/images/*.png of the pages of `rekindle site -o DIR`, by Chromium

A terminal's picture holds the whole command and its answer, so it changes when the answer does.
"""

from __future__ import annotations

import argparse
import io
import lzma
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rekindle.core import console

PROJECT = Path(__file__).resolve().parent.parent
IMAGES = PROJECT / "docs" / "images"
WIDTH = 96
TERMINALS = {
    "plan-1080-ti": ('rekindle plan --gpu "GTX 1080 Ti" --os windows --python 3.11', 30),
    "gpu-k80": ('rekindle gpu "Tesla K80"', 24),
}
"""Picture -> the command, and how many lines of its answer are shown."""


def terminal(command: str, most: int) -> str:
    # As on the computers that most readers have: elsewhere `plan` says which processor it assumes.
    words = [*shlex.split(command), *(["--arch", "x86_64"] if " plan " in command else [])]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        encoding="utf-8",
        env=_environment(),
        cwd=PROJECT,
        check=False,
    )
    lines = (done.stdout + done.stderr).rstrip().splitlines()
    shown = [*lines[:most], *(["…"] if len(lines) > most else [])]
    drawn = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    drawn.print(Text(f"$ {command}", style="bold"))
    drawn.print(Text("\n".join(shown)))
    text = drawn.export_svg(title="rekindle", unique_id="rekindle")
    # The picture must not load a font from somewhere: any monospaced one will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "NO_COLOR": "1", "COLUMNS": str(WIDTH - 2)}


def timeline() -> str:
    """The compile of PyTorch 1.13.1 for sm_35 on sixteen cores, from its recorded times."""
    from rekindle.formats import ninja_log
    from rekindle.web import report
    from rekindle.web import timeline as drawn

    data = lzma.decompress((PROJECT / "benchmarks/data/eta/pytorch-1.13.1-sm35-x86_64.csv.xz").read_bytes())
    rows = sorted((line.split(",") for line in data.decode().splitlines()), key=lambda row: int(row[2]))
    log = "# ninja log v6\n" + "".join(f"{begun}\t{ended}\t0\t{name}\t{name}\n" for name, begun, ended in rows)
    found = drawn.timeline(ninja_log.parse(log.encode()))
    page = report.html(report.BuildSummary(title="PyTorch 1.13.1 for sm_35", timeline=found))
    svg = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert svg is not None
    colours = {"cuda": "#d9601a", "cxx": "#3b74b9", "c": "#6c8f3c", "link": "#8b5fbf", "other": "#8c857b"}
    rules = "".join(f".k-{kind}{{fill:{colour}}}" for kind, colour in colours.items())
    style = f"<style>{rules}text{{font:10px sans-serif;fill:#777}}</style>"
    bare = re.sub(r"<title>.*?</title>", "", svg[0], flags=re.DOTALL)
    head, rest = bare.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def rooms() -> str:
    """The rooms from the top down, as the import linter has them."""
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"layers = \[(.*?)\]", text, re.DOTALL)
    assert layers is not None
    rows = [[name.strip(" ()") for name in row.split("|")] for row in re.findall(r'"([^"]+)"', layers[1])]
    parts, height, gap = [], 34, 10
    for number, row in enumerate(rows):
        width = (720 - gap * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            x, y = 10 + place * (width + gap), 10 + number * (height + gap)
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" rx="6"/>'
                f'<text x="{x + width / 2:.0f}" y="{y + 22}" text-anchor="middle">{name}</text>'
            )
    total = 20 + len(rows) * (height + gap)
    style = "<style>rect{fill:#fff4ec;stroke:#b5420f}text{font:15px sans-serif;fill:#1d1b19}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {total}">{style}{"".join(parts)}</svg>\n'


def pictures() -> dict[str, str]:
    made = {f"{name}.svg": terminal(*what) for name, what in TERMINALS.items()}
    return {**made, "timeline.svg": timeline(), "rooms.svg": rooms()}


PAGES = {
    "picker": ("index.html#gpu=k80&os=linux&python=3.11", 900, 800, "light", ""),
    "picker-phone": ("index.html#gpu=1080ti&os=windows", 360, 760, "dark", ""),
    "matrix": (
        "matrix.html#system=linux",
        1100,
        760,
        "light",
        "[data-name=Linux] [data-generation='3.7'] td:nth-child(6)",
    ),
}
"""Picture -> the page, the window's width and height, the colours, and what is clicked on."""


def screenshots(site: Path) -> list[str]:
    """Pages as a browser shows them. They are not compared: fonts differ from machine to machine."""
    import shutil

    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, (page, width, height, colours, clicked) in PAGES.items():
            opened = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
            opened.goto(f"{site.resolve().as_uri()}/{page}")
            opened.wait_for_timeout(1000)
            opened.evaluate("document.activeElement.blur()")
            if clicked:
                opened.click(clicked)
            opened.screenshot(path=str(IMAGES / f"{name}.png"))
        browser.close()
    return sorted(PAGES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the committed pictures are current")
    parser.add_argument("--site", type=Path, metavar="DIR", help="also take pictures of the pages of this site")
    options = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    if options.site:
        print("pages:", *screenshots(options.site))
    stale = []
    for name, text in pictures().items():
        path = IMAGES / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not options.check:
                path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{console.plural(len(stale), 'picture')} {'out of date' if options.check else 'written'}", *stale)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
