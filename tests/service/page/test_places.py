"""Test of the page behind a proxy, below a path."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.service.nginx import nginx
from tests.service.page.browser import Tab
from tests.service.page.conftest import NAMES
from tests.service.servers import RunningServer


def test_page_works_below_a_path(
    browser: Browser, server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    with nginx([server], tmp_path / "nginx") as proxy:
        context = browser.new_context(reduced_motion="reduce")
        tab = Tab(context.new_page(), server, f"{proxy}/music/")
        tab.upload(recording)
        expect(tab.page.locator("#note-count")).to_have_text("4 notes")
        tab.page.locator("summary", has_text="List").click()
        tab.listen()
        tab.wait_for_melody(NAMES)
        tab.stop()
        assert tab.console_errors == []
        context.close()
