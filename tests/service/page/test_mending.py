"""Test of a correction on the grid. The files must equal those of the correct piece."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pretty_midi
import pytest
from playwright.sync_api import expect

from tests.service.page.browser import Tab
from tests.service.servers import RunningServer

BEAT_S = 0.5
Notes = list[tuple[int, float, float]]  # pitch, onset and offset in beats
TITLE = "Spoiled"
PITCHES = [60, 64, 67, 72, 71, 67, 62, 65]
PIECE: Notes = [(pitch, float(n), n + 1.0) for n, pitch in enumerate(PITCHES)]
# One pitch is wrong, one note is added and one is missing. One note is late, and one starts late.
WRONG: Notes = [
    *[PIECE[0], (65, 1.0, 2.0), PIECE[2], (76, 2.0, 2.5)],
    *[(71, 4.5, 5.5), (67, 5.5, 6.0), *PIECE[6:]],
]
BEATS = [
    {"time_s": BEAT_S * n, "place": n % 4, "beats_per_bar": 4, "subdivision": 2} for n in range(9)
]


def json_notes(notes: Notes) -> list[dict[str, Any]]:
    return [
        {"pitch": p, "velocity": 80, "onset_s": BEAT_S * on, "offset_s": BEAT_S * off}
        for p, on, off in notes
    ]


def correct(tab: Tab) -> None:
    def point(beat: float, pitch: int) -> tuple[float, float]:
        return tab.point(BEAT_S * beat, pitch)

    tab.drag(point(1.5, 65), point(1.5, 64))
    tab.page.mouse.click(*point(2.2, 76))
    tab.page.keyboard.press("Delete")
    tab.page.mouse.dblclick(*point(3.05, 72))
    tab.drag(point(3.48, 72), point(3.97, 72))
    tab.drag(point(5.2, 71), point(4.71, 71))
    tab.drag(point(5.51, 67), point(5.01, 67))


def test_corrected_piece_equals_the_original(
    tab: Tab, server: RunningServer, tmp_path: Path
) -> None:
    page = tab.page
    page.set_viewport_size({"width": 1900, "height": 900})
    page.emulate_media(reduced_motion="no-preference")
    take = {
        "name": TITLE,
        "duration_s": 8 * BEAT_S,
        "notes": json_notes(WRONG),
        "beats": BEATS,
    }
    path = tmp_path / f"{TITLE}.json"
    path.write_text(json.dumps(take))
    page.set_input_files("#file", path)
    tab.press("Edit")
    page.wait_for_timeout(600)  # the roll glides to its view
    correct(tab)
    midi = pretty_midi.PrettyMIDI(str(tab.download(tmp_path)))
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
        corrected = tab.download(tmp_path, name).read_bytes()
        assert re.sub(dates, b"", corrected) == re.sub(dates, b"", expected)
