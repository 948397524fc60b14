"""The pictures of docs/serving.md: python examples/screenshots.py MODEL "a text" [FILE]

Needs playwright and a Chromium. FILE is a table of texts for the third picture.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from xmcascade.serve import Running

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def asked(page: Page, url: str, text: str) -> None:
    """A text with its labels."""
    page.goto(url)
    page.fill("#text", text)
    page.wait_for_selector("#why-body .read")
    page.wait_for_timeout(500)


def main() -> None:
    """Take them."""
    model, text, *file = sys.argv[1:]
    PICTURES.mkdir(exist_ok=True)
    with Running(model) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, size, scheme in (("tag", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
            page = browser.new_page(viewport=size, color_scheme=scheme)
            asked(page, server.url, text)
            page.screenshot(path=PICTURES / f"serve-{name}.png", full_page=name == "phone")
        page = browser.new_page(viewport=WIDE)
        page.goto(f"{server.url}/#/tree")
        page.click("#tree > li:nth-child(2) > .row")
        page.fill("#query", text.split()[1])
        page.wait_for_timeout(800)
        page.screenshot(path=PICTURES / "serve-tree.png")
        if file:
            page.goto(f"{server.url}/#/bulk")
            page.set_input_files("#file", file[0])
            page.click("#go")
            page.wait_for_selector("#results:not([hidden])", timeout=600_000)
            page.screenshot(path=PICTURES / "serve-many.png")
        browser.close()


if __name__ == "__main__":
    main()
