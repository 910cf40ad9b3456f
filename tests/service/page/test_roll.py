"""The roll and the page around it: keys, pointing, colours, widths, names, work per picture."""

import itertools
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.service.page.browser import Tab
from tests.service.page.conftest import LONG_S


def test_roll_answers_to_keyboard_and_pointer(tab: Tab, long_recording: Path) -> None:
    tab.upload(long_recording)
    page = tab.page
    page.get_by_role("img", name="Piano roll, 3 notes").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#position")).to_have_text("0:01.0")
    page.keyboard.press("End")
    expect(page.locator("#position")).to_have_text("1:02.0")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()

    box = page.locator("#overview").bounding_box()
    assert box is not None
    # The A5 sounds from 21 to 40 s.
    page.mouse.click(box["x"] + box["width"] * 30 / LONG_S, box["y"] + box["height"] / 2)
    page.wait_for_selector("#roll[data-sounding='A5']")


@pytest.mark.parametrize("seconds", [30, 7000])
def test_a_take_is_shown_as_a_whole_with_legible_times(bench: Tab, seconds: int) -> None:
    notes, marks = bench.run(
        """async (seconds) => {
          const { Roll } = await import('./roll/roll.js');
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Take } = await import('./notes/take.js');
          const take = new Take('long');
          for (let second = 0; second < seconds; second += 10) {
            take.noteOn(second, { pitch: 60, velocity: 64, confidence: 1 }, second);
            take.noteOff(second, second + 9);
          }
          take.finish({ length: seconds });
          const canvas = document.body.appendChild(document.createElement('canvas'));
          canvas.style.cssText = 'display: block; width: 360px; height: 200px';
          const context = canvas.getContext('2d');
          let marks = [];
          context.fillText = (text, x) => {
            if (text.includes(':')) marks.push([x, x + context.measureText(text).width]);
          };
          const roll = new Roll(canvas, new NoteFilter());
          roll.show(take);
          await new Promise((resolve) => setTimeout(resolve, 1500));  // it glides there
          marks = [];
          roll.redraw();
          await new Promise((resolve) => setTimeout(resolve, 500));
          canvas.remove();
          return [Number(canvas.dataset.drawnCount), marks];
        }""",
        seconds,
    )
    assert notes == seconds // 10
    assert len(marks) > 2
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(marks))


def test_every_control_has_a_name(tab: Tab, recording: Path) -> None:
    tab.upload(recording)
    nameless = tab.run(
        """() => [...document.querySelectorAll('button, input, select, progress, canvas')]
          .filter((e) => !e.closest('[aria-hidden=true], [hidden]'))
          .filter((e) => !(e.ariaLabel || e.innerText || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [360, 1280])
def test_no_sideways_scrolling(bench: Tab, width: int) -> None:
    bench.page.set_viewport_size({"width": width, "height": 800})
    expect(bench.page.get_by_role("button", name="Listen")).to_be_visible()
    bench.page.wait_for_function("width => innerWidth === width", arg=width)
    assert bench.run("() => document.documentElement.scrollWidth") <= width


def test_dark_scheme_repaints_page_and_roll(bench: Tab) -> None:
    look = """() => {
      const roll = document.getElementById('roll');
      const { data } = roll.getContext('2d').getImageData(roll.width - 3, 3, 1, 1);
      return { page: getComputedStyle(document.body).backgroundColor, roll: [...data] };
    }"""
    page = bench.page
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({look})().roll[0] > 150")  # once it is painted at all
    light = bench.run(look)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({look})().roll[0] < light - 100", arg=light["roll"][0])
    assert bench.run(look)["page"] != light["page"]


def test_the_roll_has_the_pixels_of_the_screen_that_it_is_moved_to(tab: Tab) -> None:
    """A window keeps its size between screens, so nothing but their scale changes."""
    screens = tab.page.context.new_cdp_session(tab.page)
    for scale in (1, 2):
        size = {"width": 1200, "height": 800, "deviceScaleFactor": scale, "mobile": False}
        screens.send("Emulation.setDeviceMetricsOverride", size)
        tab.page.wait_for_function("scale => devicePixelRatio === scale", arg=scale)
        tab.page.wait_for_timeout(300)  # a change of the size would be seen by now
        tab.slide("#least-length", 10 * scale)  # anything that draws the roll again
        tab.page.wait_for_function(
            """scale => {
              const { width, clientWidth } = document.getElementById('roll');
              return width === scale * clientWidth;
            }""",
            arg=scale,
        )
