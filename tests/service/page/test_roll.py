"""Tests of the roll and the layout: keyboard, pointer, touch, labels and screen sizes."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.service.page.browser import ENDLESS_A4, Tab
from tests.service.page.conftest import LONG_S


def test_roll_is_controlled_by_keyboard_and_pointer(tab: Tab, long_recording: Path) -> None:
    tab.upload(long_recording)
    page = tab.page
    page.get_by_role("application", name="Piano roll, 3 notes").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#position")).to_have_text("0:01.0")
    page.keyboard.press("End")
    expect(page.locator("#position")).to_have_text("1:02.0")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()

    box = tab.box("#overview")
    # The A5 sounds from 21 to 40 s.
    page.mouse.click(box["x"] + box["width"] * 30 / LONG_S, box["y"] + box["height"] / 2)
    page.wait_for_selector("#roll[data-sounding='A5']")


def test_controls_have_names_and_the_page_fits_the_screen(tab: Tab, recording: Path) -> None:
    """With a long name of a take, the page must not scroll sideways. The roll must be high enough
    to read, and the buttons large enough for fingers."""
    page = tab.page
    tab.upload(recording)
    nameless = tab.run(
        """() => [...document.querySelectorAll('button, input, select, progress, canvas')]
          .filter((e) => !e.closest('[aria-hidden=true], [hidden]'))
          .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    tab.press(f"Rename: {recording.stem}")
    page.keyboard.type("Prelude in E flat major, op. 28 no. 19, in the hall, second try")
    page.keyboard.press("Enter")
    for width, height in ((360, 640), (390, 844), (844, 390), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        tab.run("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
        check_fit(tab, width, height)


def test_downloads_are_not_cut_off_on_a_phone(tab: Tab, recording: Path) -> None:
    page = tab.page
    tab.upload(recording)
    page.set_viewport_size({"width": 360, "height": 640})
    for bar in ("Edit", "Practise"):
        tab.press(bar)
        stage, save = tab.box(".stage"), tab.box(".save")
        assert save["y"] + save["height"] <= stage["y"] + stage["height"]
        assert tab.box("#roll")["height"] >= 200
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def check_fit(tab: Tab, width: int, height: int) -> None:
    page = tab.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    listen = tab.box("#listen")
    assert listen["y"] + listen["height"] <= height
    roll = tab.box("#roll")
    assert roll["height"] >= (140 if height < 500 else 200)
    assert roll["y"] + roll["height"] <= height
    cut, small = tab.run("""() => {
      const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 1;
      const targets = 'button, select, summary, .switch label, label.quiet';
      const small = [...document.querySelectorAll(targets)]
        .filter(seen).filter((e) => Math.min(e.offsetWidth, e.offsetHeight) < 44);
      const cut = [...document.querySelectorAll('#take-name, .take-name')]
        .filter((e) => e.scrollWidth > e.clientWidth + 1);
      return [cut.length, small.map((e) => e.outerHTML)];
    }""")
    assert (cut, small) == (0, [])
    if (width, height) == (1280, 800):
        for control in ("#drop", "#midi-connect", "#takes li", "#play", "#save-midi"):
            box = tab.box(control)
            assert box["y"] + box["height"] <= height, control


def test_wheel_and_touch_zoom_and_scroll(tab: Tab, long_recording: Path) -> None:
    tab.upload(long_recording)
    page = tab.page
    box = tab.box("#roll")
    x, y = box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(x, y)
    full_view = tab.view

    def wheel(across: float, down: float, key: str | None = None) -> dict[str, float]:
        before = tab.view
        if key:
            page.keyboard.down(key)
        page.mouse.wheel(across, down)
        if key:
            page.keyboard.up(key)
        while (view := tab.view) == before:  # the browser delivers the event with its next frame
            page.wait_for_timeout(20)
        return view

    zoomed = wheel(0, -300, "Control")
    assert zoomed["span"] < full_view["span"] / 2
    assert (zoomed["low"], zoomed["high"]) == (full_view["low"], full_view["high"])
    scrolled = wheel(120, 0)
    assert scrolled["start"] > zoomed["start"]
    assert scrolled["span"] == zoomed["span"]
    lower = wheel(0, 120)
    assert lower["low"] < scrolled["low"]
    assert lower["start"] == scrolled["start"]
    assert lower["high"] - lower["low"] == pytest.approx(scrolled["high"] - scrolled["low"])
    taller = wheel(0, -200, "Alt")
    assert taller["high"] - taller["low"] < 0.6 * (lower["high"] - lower["low"])
    assert taller["span"] == lower["span"]
    tab.drag((x, y), (x + 80, y - 80))
    dragged = tab.view
    assert dragged["start"] < taller["start"]
    assert dragged["low"] < taller["low"]
    tab.press("Fit")
    assert tab.view == full_view

    tab.touch("touchStart", (x - 60, y - 50))
    tab.touch("touchStart", (x - 60, y - 50), (x + 60, y + 50))
    for step in range(1, 5):
        d = 20 * step
        tab.touch("touchMove", (x - 60 - d, y - 50 - d), (x + 60 + d, y + 50 + d))
    tab.touch("touchEnd", (x - 140, y - 130))
    tab.touch("touchEnd")
    pinched = tab.view
    assert pinched["span"] < 0.7 * full_view["span"]
    assert pinched["high"] - pinched["low"] < 0.7 * (full_view["high"] - full_view["low"])


def test_user_can_scroll_back_while_listening(tab: Tab) -> None:
    page = tab.page
    tab.run(ENDLESS_A4)
    tab.listen()
    page.wait_for_function("() => Number(document.getElementById('seek').max) > 3")
    page.locator("#roll").focus()
    for _ in range(5):
        page.keyboard.press("+")  # about a second is visible then
    now = page.get_by_role("button", name="Back to now")
    expect(now).to_be_hidden()
    page.keyboard.press("Home")
    expect(now).to_be_visible()
    page.wait_for_timeout(600)
    assert tab.view["start"] < 0.1  # the view does not follow the new notes
    assert page.locator("#seek").input_value() < "2"
    now.click()
    expect(now).to_be_hidden()
    assert tab.view["start"] > 2
    tab.stop()
