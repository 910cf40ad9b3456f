"""Tests of the page of a server with API keys, and of a server below a path of a proxy."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from service.access.keys import hash_key
from tests.service.nginx import nginx
from tests.service.page.browser import LISTENING, Tab
from tests.service.page.conftest import NAMES, TONES
from tests.service.servers import TONES as TONES_SERVER
from tests.service.servers import RunningServer, StartServer

KEY = "rse_a-key-for-this-test"


def test_page_asks_once_for_an_api_key(
    browser: Browser, start_server: StartServer, recording: Path
) -> None:
    server = start_server(*TONES_SERVER, "all", RSE_KEYS=f"someone:{hash_key(KEY).hex()}")
    context = browser.new_context(reduced_motion="reduce")
    try:
        tab = Tab(context.new_page(), server)
        page, field = tab.page, tab.page.locator("#key")

        page.on("dialog", lambda dialog: dialog.accept())  # warns that the take is not saved
        page.set_input_files("#file", recording)
        field.fill("rse_not-the-key")
        tab.press("Continue")
        field.fill(KEY)  # the page asks again
        tab.press("Continue")
        tab.wait_for_notes(len(TONES))
        expect(field).to_have_count(0)
        expect(page.locator("#players")).to_be_visible()  # instruments of the server

        page.reload()  # the tab keeps the key
        tab.listen()
        tab.wait_for_notes(1)
        tab.press("Stop")
        expect(field).to_have_count(0)
        assert KEY not in page.url

        page.evaluate("sessionStorage.clear()")
        page.reload()
        tab.press("Listen")
        field.fill(KEY)
        tab.press("Continue")
        page.wait_for_selector(LISTENING)
    finally:
        context.close()
    assert KEY not in server.log
    assert server.terminate() == 0


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
