"""Test of an edit of 20 wrong notes. The files must equal those of the correct piece."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pretty_midi
import pytest
from playwright.sync_api import Page, expect

from tests.service.page.browser import Tab, save_download
from tests.service.servers import RunningServer

pytest.importorskip("verovio", reason="the extra score")
BEAT_S = 0.5
Notes = list[tuple[int, float, float]]  # pitch, onset and offset in beats
Point = tuple[float, float]
TITLE = "Spoiled"
# Eight bars. The last one repeats a note.
PITCHES = [60, 64, 67, 72, 71, 67, 62, 65, 69, 65, 62, 59, 60, 64, 67, 64]
PIECE: Notes = [(p, float(n), n + 1.0) for n, p in enumerate([*PITCHES, *PITCHES[:-2], 60, 60])]
BEATS = [
    {"time_s": BEAT_S * n, "place": n % 4, "beats_per_bar": 4, "subdivision": 2} for n in range(33)
]


def wrong_piece() -> Notes:
    notes: list[Any] = list(PIECE)
    for index, semitones in ((1, 1), (4, -2), (9, 12), (14, -1), (20, 3)):
        notes[index] = (notes[index][0] + semitones, *notes[index][1:])
    for index in (3, 11, 17, 25):
        notes[index] = None
    for index, beats in ((6, 0.5), (16, 0.25), (22, -0.5)):
        notes[index] = (notes[index][0], notes[index][1] + beats, notes[index][2] + beats)
    notes[8] = (notes[8][0], notes[8][1], notes[8][1] + 0.25)
    notes[27] = (notes[27][0], notes[27][1] + 0.5, notes[27][2])
    notes[30:32] = [(60, 30.0, 32.0)]  # joined
    notes[12:13] = [(60, 12.0, 12.5), (60, 12.5, 13.0)]  # split
    extra_notes: Notes = [(76, 2.0, 2.5), (55, 5.0, 6.0), (79, 18.0, 19.0), (52, 24.0, 26.0)]
    return sorted([*filter(None, notes), *extra_notes], key=lambda note: note[1])


def json_notes(notes: Notes) -> list[dict[str, Any]]:
    return [
        {"pitch": p, "velocity": 80, "onset_s": BEAT_S * on, "offset_s": BEAT_S * off}
        for p, on, off in notes
    ]


def correct(page: Page, point: Callable[[float, float], Point]) -> None:
    mouse, keyboard = page.mouse, page.keyboard

    def drag(start: Point, end: Point) -> None:
        mouse.move(*start)
        mouse.down()
        mouse.move(*end, steps=3)
        mouse.up()

    for pitch, wrong, beat in ((64, 65, 1), (71, 69, 4), (65, 77, 9), (67, 66, 14), (71, 74, 20)):
        drag(point(beat + 0.5, wrong), point(beat + 0.5, pitch))
    for extra_pitch, beat_inside in ((76, 2.2), (55, 5.5), (79, 18.5), (52, 25.0)):
        mouse.click(*point(beat_inside, extra_pitch))
        keyboard.press("Delete")
    for pitch, beat in ((72, 3), (59, 11), (64, 17), (65, 25)):
        mouse.dblclick(*point(beat + 0.05, pitch))
        drag(point(beat + 0.47, pitch), point(beat + 0.97, pitch))
    for pitch, onset, by in ((62, 6, 0.5), (60, 16, 0.25), (62, 22, -0.5)):
        drag(point(onset + by + 0.5, pitch), point(onset + 0.5, pitch))
    drag(point(8.24, 69), point(8.99, 69))
    drag(point(27.51, 59), point(27.01, 59))
    mouse.click(*point(31.0, 60))
    keyboard.press("s")
    mouse.click(*point(12.25, 60))
    keyboard.down("Shift")
    mouse.click(*point(12.75, 60))
    keyboard.up("Shift")
    keyboard.press("j")


def test_corrected_piece_equals_the_original(
    tab: Tab, server: RunningServer, tmp_path: Path
) -> None:
    page = tab.page
    page.set_viewport_size({"width": 1900, "height": 900})
    page.emulate_media(reduced_motion="no-preference")
    take = {
        "name": TITLE,
        "duration_s": 32 * BEAT_S,
        "notes": json_notes(wrong_piece()),
        "beats": BEATS,
    }
    path = tmp_path / f"{TITLE}.json"
    path.write_text(json.dumps(take))
    page.set_input_files("#file", path)
    tab.press("Edit")
    page.wait_for_timeout(600)  # the roll glides to its view
    view, box = tab.view, tab.box("#roll")
    row = (box["height"] - 36) / (view["high"] - view["low"] + 1)

    def point(beat: float, pitch: float) -> Point:
        share = (BEAT_S * beat - view["start"]) / view["span"]
        y = box["y"] + 36 + (view["high"] - pitch + 0.5) * row
        return box["x"] + 64 + share * (box["width"] - 64), y

    correct(page, point)
    midi = pretty_midi.PrettyMIDI(str(save_download(tab.download(), tmp_path)))
    (part,) = midi.instruments
    played = sorted((note.start, note.pitch, note.end) for note in part.notes)
    assert [pitch for _, pitch, _ in played] == [pitch for pitch, _, _ in PIECE]
    for index, beat in ((0, 1), (2, 2)):
        times_s = [note[index] for note in played]
        assert times_s == pytest.approx([BEAT_S * note[beat] for note in PIECE], abs=2e-3)

    page.get_by_role("tab", name="Score").click()
    expect(page.locator("#score-page g.note")).to_have_count(len(PIECE))
    body = {"notes": json_notes(PIECE), "title": TITLE, "beats": BEATS}
    for name, form in (("Download MusicXML", "musicxml"), ("Download PDF", "pdf")):
        response = httpx.post(f"{server.url}/score?form={form}", json=body, timeout=60)
        expected = response.raise_for_status().content
        dates = rb"<encoding-date>.*?<|/CreationDate \(.*?\)|id=\"[^\"]*\""
        corrected = save_download(tab.download(name), tmp_path).read_bytes()
        assert re.sub(dates, b"", corrected) == re.sub(dates, b"", expected)
