"""Tests of instruments on the page: legend, mute and solo, selection, files and MIDI out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pretty_midi
import pytest
import soundfile
from playwright.sync_api import Browser, expect

from model.instruments import PROGRAMS
from tests.fakes import play
from tests.service.page.browser import IDLE, Tab, fresh_tab, notes_of, pitches_of
from tests.service.servers import RunningServer

RATE_HZ = 22_050
DURATION_S = 2.2
# The fake model classifies the instrument of a tone by its loudness. The tones overlap, because the
# service assigns only one instrument to notes that follow each other.
PARTS = [(81, 0.2, 1.3, 0.17), (57, 0.5, 1.7, 0.2), (69, 0.9, 1.9, 0.14), (93, 0.9, 1.9, 0.14)]
LEGEND = {"piano": 1, "violin": 1, "viola": 2}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "trio.wav"
    parts = [play([(p, on, off)], DURATION_S, RATE_HZ, level) for p, on, off, level in PARTS]
    soundfile.write(path, np.sum(parts, axis=0), RATE_HZ, subtype="PCM_16")
    return path


@pytest.fixture
def ensemble_tab(browser: Browser, ensemble: RunningServer) -> Iterator[Tab]:
    yield from fresh_tab(browser, ensemble)


def legend(tab: Tab) -> dict[str, int]:
    rows = tab.page.locator("#instruments li:visible").all()
    names = [row.locator(".instrument-name").inner_text() for row in rows]
    counts = [int(row.locator(".instrument-count").inner_text()) for row in rows]
    return dict(zip(names, counts, strict=True))


def test_legend_mutes_and_solos_instruments(ensemble_tab: Tab, trio: Path, tmp_path: Path) -> None:
    tab, page = ensemble_tab, ensemble_tab.page
    tab.upload(trio)
    expect(page.locator("#instruments")).to_be_visible()
    expect(page.locator("#instruments li:visible")).to_have_count(len(LEGEND))
    assert legend(tab) == LEGEND
    notes = notes_of(tab.download(tmp_path, "Download JSON"))
    labels = [str(note["instrument"]) for note in notes]
    assert labels == ["violin", "piano", "viola", "viola"]

    tab.press("Mute viola")
    expect(page.locator("#note-count")).to_have_text("2 of 4 notes")
    assert pitches_of(tab.download(tmp_path)) == [81, 57]
    tab.press("Mute viola")
    tab.press("Solo violin")
    expect(page.locator("#note-count")).to_have_text("1 of 4 notes")
    expect(page.get_by_role("button", name="Solo violin")).to_have_attribute("aria-pressed", "true")
    tab.press("Solo violin")
    expect(page.locator("#note-count")).to_have_text("4 notes")


def test_chosen_instruments_apply_to_recordings_and_sessions(ensemble_tab: Tab, trio: Path) -> None:
    tab, page = ensemble_tab, ensemble_tab.page
    page.locator("#players summary").click()
    tab.upload(trio)
    assert legend(tab) == LEGEND
    instruments = page.get_by_role("group", name="Allowed instruments")
    for name in ("viola", "flute"):
        instruments.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("#players-chosen")).to_have_text("viola, flute")
    page.get_by_role("button", name="Again: trio").click()
    expect(page.locator("#takes li")).to_have_count(2)
    page.wait_for_selector(IDLE)
    assert legend(tab).keys() <= {"viola", "flute"}
    assert sum(legend(tab).values()) == sum(LEGEND.values())
    tab.listen()
    tab.stop()
    assert tab.starts[0]["instruments"] == ["viola", "flute"]


def test_files_contain_the_audible_instruments(
    ensemble_tab: Tab, trio: Path, tmp_path: Path
) -> None:
    tab = ensemble_tab
    tab.upload(trio)
    tab.press("Solo viola")
    midi_file = tab.download(tmp_path)
    (viola,) = pretty_midi.PrettyMIDI(str(midi_file)).instruments
    assert (viola.name, viola.program) == ("viola", PROGRAMS["viola"])
    assert sorted(note.pitch for note in viola.notes) == [69, 93]

    tab.press("Solo viola")
    tab.slide("#least-length", 10)  # with a filter, the page writes the file
    parts = pretty_midi.PrettyMIDI(str(tab.download(tmp_path))).instruments
    assert {part.name: len(part.notes) for part in parts} == LEGEND
    assert all(part.program == PROGRAMS[part.name] for part in parts)
    (piano,) = [part for part in parts if part.name == "piano"]
    assert [(c.number, c.value) for c in piano.control_changes] == [(64, 127), (64, 0)]


def test_hidden_tab_plays_midi_out_with_pedal(ensemble_tab: Tab, trio: Path) -> None:
    tab, page = ensemble_tab, ensemble_tab.page
    tab.connect_synthesiser()
    tab.upload(trio)
    # Timers of a hidden tab run once a second at most, and it does not draw.
    tab.run("() => { setTimeout = setInterval = requestAnimationFrame = () => 0; }")
    piano = "sent.filter(([kind, number]) => kind === 0xB1 && number === 64)"
    tab.press("Play")
    page.wait_for_function(f"() => {piano}.length >= 2")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    pedal_values = page.evaluate(f"{piano}.map(([, , value]) => value)")
    assert pedal_values[:2] == [127, 0]
    sent = page.evaluate("sent")
    note_ons, note_offs = ([m[1] for m in sent if m[0] & 0xF0 == kind] for kind in (0x90, 0x80))
    assert note_ons == [81, 57, 69, 93]
    assert sorted(note_offs) == sorted(note_ons)

    page.evaluate("sent.length = 0")
    tab.slide("#seek", 1.0)  # the pedal is down then
    tab.press("Play")
    page.wait_for_function(f"() => {piano}.length >= 2")
    assert page.evaluate(f"{piano}[0][2]") == 127
