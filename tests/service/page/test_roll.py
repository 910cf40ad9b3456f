"""The roll and the page around it: keys, pointing, colours, widths, names, work per picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.service.page.browser import Tab
from tests.service.page.conftest import LONG_S

pytestmark = pytest.mark.timeout(400)  # a browser and a server, perhaps on a busy machine


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


def test_every_control_has_a_name(tab: Tab, recording: Path) -> None:
    tab.upload(recording)
    nameless = tab.run(
        """() => [...document.querySelectorAll('button, input, select, progress, canvas')]
          .filter((e) => !e.closest('[aria-hidden=true], [hidden]'))
          .filter((e) => !(e.ariaLabel || e.innerText || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [360, 860, 1280])
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


def test_a_picture_costs_what_it_shows_not_what_was_played(bench: Tab) -> None:
    count, drone = 30_000, (5.0, 2900.0)
    work = bench.run(
        """async ({ count, drone }) => {
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Painter } = await import('./roll/painter.js');
          const { Take } = await import('./notes/take.js');
          const take = new Take('hours');
          const note = (i) => ({ pitch: 40 + (i % 40), velocity: 80, confidence: 1 });
          take.noteOn('drone', note(0), drone[0]);
          for (let i = 0; i < count; i += 1) {
            take.noteOn(i, note(i), i / 10);
            take.noteOff(i, i / 10 + 0.08);
          }
          take.noteOff('drone', drone[1]);
          let reads = 0; // of any note's onset: each look at a note begins with it
          for (const one of take.notes) {
            const { onset } = one;
            Object.defineProperty(one, 'onset', { get: () => { reads += 1; return onset; } });
          }
          const view = { start: 2000, span: 10, low: 36, high: 90 };
          const filter = new NoteFilter();
          const painter = new Painter(document.getElementById('roll'));
          const { drawn } = painter.paint({ take, view, head: null, cursor: 2005, filter });
          return { drawn, reads, all: take.notes.length };
        }""",
        {"count": count, "drone": drone},
    )
    assert work["all"] == count + 1
    shown = [i for i in range(count) if i / 10 < 2010 and i / 10 + 0.08 >= 2000]
    assert work["drawn"] == len(shown) + 1  # and the long note under them
    assert work["reads"] < 10 * work["drawn"]


def test_heat_lies_behind_the_notes_at_its_pitch_and_time(bench: Tab) -> None:
    seen = bench.run(
        """async () => {
          const { Heat } = await import('./roll/heat.js');
          const heat = new Heat(0.01);
          const bytes = new Uint8Array(400 * 2);
          bytes[2 * 300 + 1] = 255;  // the upper of two pitches, in frame 300
          heat.add(10, { lowest: 60, pitches: 2, bytes });
          const canvas = new OffscreenCanvas(400, 20);
          const context = canvas.getContext('2d');
          const rows = { height: 10, top: (pitch) => (61 - pitch) * 10 };
          const x = (time) => (time - 12) * 200;  // two seconds across, a frame is two pixels
          heat.draw(context, { start: 12, end: 14, x, rows }, [10, 20, 250]);
          const { data } = context.getImageData(0, 0, 400, 20);
          const columns = new Set(), lines = new Set();
          for (let i = 0; i < 400 * 20; i += 1) {
            if (data[4 * i + 3]) { columns.add(i % 400); lines.add(Math.floor(i / 400)); }
          }
          return { columns: [...columns].sort((a, b) => a - b), lines: [...lines] };
        }"""
    )
    assert seen["lines"] == list(range(10))
    assert seen["columns"] == [199, 200]  # about the frame's own time, 13.00 s
