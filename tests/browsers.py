"""A real Chromium for tests, through Playwright; and axe, which looks for what keeps people out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


def need_browser() -> None:
    """Skips the test where Chromium or Playwright is not installed."""
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's synchronous interface."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def axe_script() -> str:
    base = pytest.importorskip("axe_playwright_python.base")
    return Path(base.AXE_FILE_PATH).read_text("utf-8")


def violations(page: Any, script: str) -> list[str]:
    """What axe finds wrong with the page as it stands, a line each."""
    page.evaluate(script)
    found = page.evaluate("async () => (await axe.run()).violations")
    return [f"{v['id']}: {node['html'][:200]} ({node['failureSummary']})" for v in found for node in v["nodes"][:3]]
