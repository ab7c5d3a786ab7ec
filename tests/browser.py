"""A headless browser for tests that look at pages as people see them: the fixture `browser`.

It needs playwright (the Python package) and a Chromium that is installed already: nothing is downloaded. Where either
is missing, the tests that ask for it are skipped, and say which.
"""

import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""What Chromium is called where it is installed, in the order in which they are looked for."""

OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
"""For containers, which give no user namespaces and a small /dev/shm, and so that it asks nobody for updates."""


def executable(own=""):
    """The path of a Chromium: one of NAMES in PATH, else playwright's own if it is there, else ""."""
    found = next(filter(None, map(shutil.which, NAMES)), "")
    return found or (own if own and Path(own).is_file() else "")


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium as playwright drives it (playwright.sync_api.Browser), for the tests of one module."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    with api.sync_playwright() as playwright:
        path = executable(playwright.chromium.executable_path)
        if not path:
            pytest.skip(f"no Chromium here: none of {', '.join(NAMES)} in PATH, and playwright has none of its own")
        with playwright.chromium.launch(executable_path=path, args=list(OPTIONS)) as launched:
            yield launched
