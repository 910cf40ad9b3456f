"""Tests of the Score tab."""

import re
from pathlib import Path
from typing import Any

import mido
from playwright.sync_api import Route, expect

from tests.service.page.browser import Tab

SHOWN = """() => [...document.querySelectorAll("button, input, h1, h2")]
  .filter((element) => element.checkVisibility()).map(({ id }) => id)"""
"""Script that returns the ids of visible controls and headings."""


def test_score_is_shown_followed_and_saved(tab: Tab, tune: Path, tmp_path: Path) -> None:
    tab.upload(tune)
    page = tab.page
    tab.press("Rename: tune")
    page.keyboard.press("Escape")
    beats = "async () => (await import('./app.js')).stage.take.beats"
    assert len(page.evaluate(beats)) > 10
    tab.run("""() => {
      window.drawn = [];
      const fillText = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        drawn.push(text);
        fillText.call(this, text, ...rest);
      };
    }""")

    tab.run("""async () => {
      const { stage } = await import('./app.js');
      stage.take.pedal = [{ onset: 0.6, offset: 1.7 }, { onset: 1.8, offset: null }];
    }""")
    pedals = []

    def request_chords(route: Route) -> None:  # by default a monophonic tune has none
        body: dict[str, Any] = route.request.post_data_json or {}
        pedals.append(body["pedal"])
        route.continue_(post_data=body | {"chords": True})

    page.route("**/score?form=*", request_chords)
    page.get_by_role("tab", name="Roll").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Score")).to_be_focused()
    expect(page.locator("#roll-frame")).to_be_hidden()
    expect(page.locator("#score-page g.measure").first).to_be_visible()
    expect(page.locator("#score-about")).to_contain_text("beats a minute")
    assert page.locator("#score-page g.note").count() >= 16
    page.wait_for_function("""() => ["normal", "bold"].every((weight) => [...document.fonts].some(
        (font) => font.family.includes("Libertinus") && font.weight === weight
            && font.status === "loaded"))""")
    music = tab.download(tmp_path, "Download MusicXML")
    assert music.name == "tune.musicxml"
    assert b"<work-title>Tune in A</work-title>" in music.read_bytes()  # the recording's tag
    assert tab.download(tmp_path, "Download PDF").read_bytes().startswith(b"%PDF")
    # The sounding notes are marked.
    tab.slide("#seek", 2.0)
    expect(page.locator("#score-page g.note.sounding")).to_have_count(1)
    # A new window width and a new filter each request a new score.
    with page.expect_response("**/score*"):
        page.set_viewport_size({"width": 390, "height": 500})
    tab.press("Practise")
    before = page.evaluate(beats)
    with page.expect_response("**/score*") as response:
        page.locator("#hand").select_option("Left hand")
    assert len((response.value.request.post_data_json or {})["notes"]) == 4
    drawn_notes = "document.querySelectorAll('#score-page g.note').length"
    page.wait_for_function(f"() => {drawn_notes} > 0 && {drawn_notes} < 16")
    assert page.evaluate(beats) == before  # they are those of all notes
    with page.expect_response("**/score*"):
        page.locator("#hand").select_option("Both hands")
    # The score scrolls to the current bar, unless Follow is off.
    scrolled = "() => document.getElementById('score-page').scrollTop"
    page.locator("#follow").uncheck()
    page.evaluate("() => document.getElementById('score-page').scrollTo(0, 0)")
    tab.slide("#seek", 9.0)
    expect(page.locator("#score-page g.measure").last).to_have_class(re.compile("now"))
    assert page.evaluate(scrolled) == 0
    page.locator("#follow").check()
    measures = page.locator("#score-page g.measure")
    for seconds, measure, place in 2 * ((1.0, measures.first, "== 0"), (9.0, measures.last, "> 0")):
        tab.slide("#seek", seconds)
        expect(measure).to_have_class(re.compile("now"))
        page.wait_for_function(f"{scrolled} {place}")
    # A click on a bar moves the position there, also in the roll.
    tab.run("""async () => {
      const { roll } = (await import('./app.js')).stage;
      const setCursor = roll.setCursor.bind(roll);
      roll.setCursor = (seconds) => setCursor((window.cursor = seconds));
    }""")
    page.locator("#score-page g.measure").last.click(force=True)
    page.wait_for_function("() => window.cursor > 1")
    expect(page.locator("#score-page g.measure.now")).to_have_count(1)
    expect(page.locator("#position")).not_to_have_text("0:00.0")
    page.get_by_role("tab", name="Roll").click()
    expect(page.locator("#score")).to_be_hidden()
    expect(page.locator("#roll")).to_be_visible()
    page.wait_for_function("() => drawn.includes('A')")  # the tune's chord
    assert pedals == [[{"onset_s": 0.6, "offset_s": 1.7}]] * len(pedals)
    assert not tab.console_errors


def test_print_contains_the_score_alone(tab: Tab, tune: Path) -> None:
    """No page break divides a system, because each is a separate drawing."""
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 844})
    tab.upload(tune)
    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-page g.measure").first).to_be_visible()
    expect(page.locator("#score-page > svg")).to_have_count(1)
    bars = page.locator("#score-page g.measure").count()
    page.locator("#score-page > svg").evaluate("(svg) => { svg.dataset.smaller = ''; }")
    with page.expect_response("**/score*") as response:  # larger notes need more systems
        page.get_by_role("button", name="Zoom in").click()
    assert "width=720" in response.value.url
    expect(page.locator("#score-page > svg[data-smaller]")).to_have_count(0)  # the larger is drawn
    page.pdf()
    systems = page.locator("#score-page g.system").count()
    assert systems > 1
    expect(page.locator("#score-page > svg")).to_have_count(systems)
    expect(page.locator("#score-page g.measure")).to_have_count(bars)
    page.emulate_media(media="print")
    expect(page.locator("#score-page > svg").last).to_have_css("break-inside", "avoid")
    assert page.evaluate(SHOWN) == []
    page.emulate_media(media="screen")
    page.get_by_role("tab", name="Roll").click()
    page.emulate_media(media="print")
    expect(page.locator("#roll")).to_be_visible()
    assert page.evaluate(SHOWN) == ["take-name"]


def test_print_of_the_roll_is_light_in_the_dark_scheme(tab: Tab, tune: Path) -> None:
    page = tab.page
    tab.upload(tune)
    corner = (
        "() => document.querySelector('#roll').getContext('2d').getImageData(2, 2, 1, 1).data[0]"
    )
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({corner})() < 64")
    page.evaluate(f"() => onafterprint = () => window.printed = ({corner})()")
    page.pdf()
    assert page.evaluate("printed") > 192
    page.wait_for_function(f"() => ({corner})() < 64")


def test_score_grows_while_listening(tab: Tab) -> None:
    page = tab.page
    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-about")).to_contain_text("appears as notes are detected")
    page.get_by_role("button", name="Listen").click()
    expect(page.locator("#score-page g.measure").first).to_be_visible()
    expect(page.get_by_role("button", name="Download PDF")).to_be_disabled()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Download PDF")).to_be_enabled()


def test_opened_midi_file_has_a_score(tab: Tab, tmp_path: Path) -> None:
    """The service is busy at first, so the page waits. Each track is a part. A note that is too low
    for a score is omitted."""
    file = mido.MidiFile()
    for name, program in (("Piano", 0), ("Violin I", 0), ("Violin II", 40), ("Gitarre", 25)):
        track = file.add_track(name)
        track.append(mido.Message("program_change", program=program))
        for pitch in (5, *range(60, 72)):
            track.append(mido.Message("note_on", note=pitch))
            track.append(mido.Message("note_off", note=pitch, time=file.ticks_per_beat))
    path = tmp_path / "duo.mid"
    file.save(path)
    page = tab.page
    page.set_input_files("#file", path)
    expect(page.locator("#takes li")).to_have_count(1)
    colours = page.locator(".swatch").evaluate_all("all => all.map((e) => e.style.background)")
    assert len(set(colours)) == 4
    requests: list[dict[str, Any]] = []

    def reject(route: Route) -> None:
        requests.append(route.request.post_data_json or {})
        route.fulfill(status=503, headers={"Retry-After": "3"}, json={"detail": "busy"})

    page.route("**/score?form=svg*", reject)
    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-about")).to_have_text("busy")
    page.wait_for_timeout(1500)
    assert len(requests) == 1
    named = {(note.get("instrument"), note.get("part")) for note in requests[0]["notes"]}
    assert named == {
        *(("piano", None), (None, "Violin I"), ("violin", "Violin II"), ("plucked", "Gitarre")),
    }
    page.unroute("**/score?form=svg*")
    expect(page.locator("#score-page g.note")).to_have_count(60)  # with tablature
    expect(page.locator("#score-page")).to_contain_text("Violin II")
    assert all("503" in error for error in tab.console_errors)
    tab.console_errors.clear()


def test_status_line_shows_that_a_file_is_written(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    take = tmp_path / "note.json"
    take.write_text('{"notes": [{"pitch": 60, "onset_s": 0, "offset_s": 1}]}')
    page.set_input_files("#file", take)
    tab.run("""() => {
      const gate = new Promise((open) => { window.openGate = open; });
      const send = window.fetch;
      window.fetch = (...request) => gate.then(() => send(...request));
    }""")
    tab.press("Download PDF")
    expect(page.locator("#status")).to_have_text("Writing the PDF…")
    expect(page.locator("#save-pdf")).to_be_disabled()
    with page.expect_download():
        tab.run("() => openGate()")
    expect(page.locator("#status")).to_have_text("Ready")
    expect(page.locator("#save-pdf")).to_be_enabled()


def test_nothing_to_write_and_a_missing_server_are_explained(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    take = tmp_path / "note.json"
    take.write_text('{"notes": [{"pitch": 60, "onset_s": 0, "offset_s": 0.4}]}')
    page.set_input_files("#file", take)
    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-page g.note")).to_have_count(1)
    tab.slide("#least-length", 500)
    expect(page.locator("#score-about")).to_have_text("All notes are hidden.")
    expect(page.locator("#score-page g.note")).to_have_count(0)
    tab.press("Download PDF")
    expect(page.locator("#status")).to_have_text("There are no notes to write.")
    tab.slide("#least-length", 0)
    expect(page.locator("#score-page g.note")).to_have_count(1)
    page.context.set_offline(True)
    tab.press("Download PDF")
    expect(page.locator("#status")).to_have_text("The server cannot be reached.")
    assert all("ERR_INTERNET_DISCONNECTED" in error for error in tab.console_errors)
    tab.console_errors.clear()


def test_slow_score_can_be_cancelled(tab: Tab, tune: Path) -> None:
    tab.upload(tune)
    page = tab.page
    page.route("**/score?form=svg*", lambda route: None)  # no response
    page.get_by_role("tab", name="Score").click()
    expect(page.get_by_label("Progress of the score")).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 640})
    save, frame = tab.box("#save-pdf"), tab.box("#score")
    assert save["x"] + save["width"] <= frame["x"] + frame["width"]
    page.get_by_role("button", name="Cancel the score").click()
    expect(page.locator("#score-about")).to_contain_text("Cancelled")
    expect(page.get_by_label("Progress of the score")).to_be_hidden()
    page.unroute("**/score?form=svg*")
    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-page g.measure").first).to_be_visible()
