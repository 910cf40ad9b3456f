"""Tests of the list of takes: names, deletion, storage in the browser, and opening files."""

import base64
import json
from pathlib import Path

import pretty_midi
import pytest
from playwright.sync_api import Dialog, Locator, expect

from tests.service.page.browser import IDLE, Tab, notes_of, pitches_of
from tests.service.page.conftest import PITCHES

KEPT = "async () => (await import('./app.js')).stage.take.kept"
NOTHING_STORED = """() => new Promise((done) => {
  indexedDB.open('takes').onsuccess = ({ target: { result: database } }) => {
    const request = database.transaction('takes').objectStore('takes').count();
    request.onsuccess = () => done(request.result === 0);
  };
})"""


def raise_all_notes(tab: Tab) -> None:
    """Raise every note of the take by a semitone."""
    tab.press("Edit")
    tab.page.locator("#roll").focus()
    tab.page.keyboard.press("Control+a")
    tab.page.keyboard.press("ArrowUp")


def test_unsaved_take_is_deleted_only_after_confirmation(tab: Tab, recording: Path) -> None:
    page = tab.page
    dialogs: list[tuple[str, str]] = []

    def dismiss_first(dialog: Dialog) -> None:
        dialogs.append((dialog.type, dialog.message))
        if dialog.type == "confirm" and len(dialogs) == 1:
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", dismiss_first)
    tab.upload(recording)
    take = page.locator("#takes li")
    tab.press(f"Rename: {recording.stem}")
    page.keyboard.type("Scale in A: slow")
    page.keyboard.press("Enter")
    expect(page.locator("#take-name")).to_have_text("Scale in A: slow")
    assert page.evaluate("document.activeElement.className") == "take-choose"
    tab.press("Rename: Scale in A: slow")
    page.keyboard.type("another")
    page.keyboard.press("Escape")
    expect(take).to_contain_text("Scale in A: slow")

    tab.press("Delete: Scale in A: slow")
    expect(take).to_have_count(1)
    assert dialogs == [("confirm", "Delete “Scale in A: slow”? It was not downloaded.")]


def test_saved_take_is_deleted_without_a_question(
    tab: Tab, recording: Path, tmp_path: Path
) -> None:
    page = tab.page

    def fail(dialog: Dialog) -> None:
        tab.console_errors.append(f"unexpected dialog: {dialog.message}")
        dialog.accept()

    page.on("dialog", fail)
    tab.upload(recording, recording)
    assert pitches_of(tab.download(tmp_path)) == PITCHES
    first, second = page.locator("#takes li").all()
    second.locator(".take-choose").click()

    name, pitches = drag_out(second, tmp_path)
    assert name == f"audio/midi:{recording.stem}.mid:data:audio/midi;"
    assert pitches == PITCHES

    second.locator(".delete").click()
    expect(page.locator("#takes li")).to_have_count(1)
    expect(page.locator("#note-count")).to_have_text("4 notes")
    first.locator(".delete").click()
    expect(page.locator("#takes-panel")).to_be_hidden()
    expect(page.locator("#empty")).to_be_visible()
    page.wait_for_selector(IDLE)
    page.reload()


def drag_out(row: Locator, folder: Path) -> tuple[str, list[int]]:
    """Drag a take out of the page. Return the name and the pitches of its MIDI file."""
    dragged: str = row.evaluate("""(row) => {
      const dataTransfer = new DataTransfer();
      row.dispatchEvent(new DragEvent('dragstart', { dataTransfer }));
      Object.defineProperty(dataTransfer, 'dropEffect', { value: 'copy' });
      row.dispatchEvent(new DragEvent('dragend', { dataTransfer }));
      return dataTransfer.getData('DownloadURL');
    }""")
    name, _, data = dragged.partition("base64,")
    path = folder / "dragged.mid"
    path.write_bytes(base64.b64decode(data))
    return name, pitches_of(path)


def test_take_with_unsaved_notes_or_sound_is_deleted_only_after_confirmation(
    tab: Tab, tmp_path: Path
) -> None:
    page = tab.page
    questions: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        questions.append(dialog.message.partition("”? ")[2])
        dialog.dismiss()

    page.on("dialog", dismiss)
    tab.listen()
    tab.wait_for_notes(4)
    tab.stop()
    delete = page.locator("#takes .delete")
    tab.slide("#least-length", 500)  # hides notes
    tab.download(tmp_path, "Download JSON")
    delete.click()
    tab.slide("#least-length", 0)
    tab.download(tmp_path)
    delete.click()
    assert questions == ["It was not downloaded.", "Its sound was not downloaded."]
    tab.download(tmp_path, "Download WAV")
    delete.click()
    expect(page.locator("#takes-panel")).to_be_hidden()


def test_mute_does_not_apply_to_another_take_that_is_dragged(tab: Tab, tmp_path: Path) -> None:
    parts = (("piano", 60), ("violin", 67))
    notes = [{"pitch": p, "onset_s": 0, "offset_s": 1, "instrument": name} for name, p in parts]
    files = [tmp_path / name for name in ("first.json", "second.json")]
    for file in files:
        file.write_text(json.dumps({"notes": notes}))
    tab.page.set_input_files("#file", files)
    tab.press("Mute piano")
    shown, other = tab.page.locator("#takes li").all()
    assert drag_out(shown, tmp_path)[1] == [67]
    assert drag_out(other, tmp_path)[1] == [60, 67]


def test_takes_survive_a_reload(tab: Tab, recording: Path) -> None:
    page = tab.page
    tab.upload(recording)
    raise_all_notes(tab)
    tab.press(f"Rename: {recording.stem}")
    page.keyboard.type("Mended")
    page.keyboard.press("Enter")
    tab.until(KEPT)
    page.reload()
    expect(page.locator("#takes li")).to_contain_text("Mended")
    expect(page.locator("#note-count")).to_have_text("4 notes")
    pitches = "async () => (await import('./app.js')).stage.take.notes.map((n) => n.pitch)"
    assert tab.run(pitches) == [pitch + 1 for pitch in PITCHES]
    sound = "async () => (await (await import('./app.js')).stage.take.recording.file('')).size"
    assert tab.run(sound) == recording.stat().st_size
    tab.press("Edit")
    tab.press("Undo")
    assert tab.run(pitches) == PITCHES
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#takes .delete").click()
    tab.until(NOTHING_STORED)
    page.reload()
    tab.run("async () => (await import('./app.js')).restored")
    expect(page.locator("#takes-panel")).to_be_hidden()


def test_live_take_survives_a_crash(tab: Tab) -> None:
    page = tab.page
    tab.listen()
    tab.wait_for_notes(2)
    tab.until("async () => (await import('./app.js')).stage.take.stored")
    second = page.context.new_page()  # the first page writes no more, like after a crash
    second.goto(tab.server.url)
    expect(second.locator("#takes li")).to_contain_text("Live")
    expect(second.locator("#note-count")).not_to_have_text("0 notes")


def test_saved_takes_and_midi_can_be_opened(tab: Tab, recording: Path, tmp_path: Path) -> None:
    page = tab.page
    tab.upload(recording)
    raise_all_notes(tab)
    raised = [pitch + 1 for pitch in PITCHES]
    json_file = tab.download(tmp_path, "Download JSON")
    midi = tab.download(tmp_path)
    assert pitches_of(midi) == raised
    state = """async () => {
      const { take } = (await import('./app.js')).stage;
      const { transcribed, recording } = take;
      const pitches = (notes) => notes.map(({ pitch }) => pitch);
      return [pitches(take.notes), transcribed && pitches(transcribed.notes), Boolean(recording)];
    }"""
    page.set_input_files("#file", [json_file])
    expect(page.locator("#takes li")).to_have_count(2)
    assert tab.run(state) == [raised, PITCHES, False]
    sound = tmp_path / f"{midi.stem}.wav"
    sound.write_bytes(recording.read_bytes())
    page.set_input_files("#file", [midi, sound])
    expect(page.locator("#takes li")).to_have_count(3)
    assert tab.run(state) == [raised, None, True]
    onsets = "async () => (await import('./app.js')).stage.take.notes.map(({ onset }) => onset)"
    expected = [note["onset_s"] for note in notes_of(json_file)]
    assert tab.run(onsets) == pytest.approx(expected, abs=2e-3)
    drums = pretty_midi.PrettyMIDI()
    drums.instruments.append(pretty_midi.Instrument(0, is_drum=True))
    drums.instruments[0].notes.append(pretty_midi.Note(80, 38, 0, 1))
    drums.write(str(tmp_path / "drums.mid"))
    page.set_input_files("#file", tmp_path / "drums.mid")
    expect(page.locator("#status")).to_contain_text("drums.mid has no pitched notes.")
    text_file = tmp_path / "letter.mid"
    text_file.write_text("Dear musician")
    page.set_input_files("#file", [text_file, json_file])
    expect(page.locator("#takes li")).to_have_count(4)
    expect(page.locator("#status")).to_contain_text("letter.mid is not a take")


def test_two_tabs_and_a_full_disk_lose_no_take(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    take = tmp_path / "scale.json"
    notes = [{"pitch": 60 + n % 4, "onset_s": n, "offset_s": n + 1} for n in range(400)]
    take.write_text(json.dumps({"notes": notes, "name": "Scale"}))
    # Without free space the page lists the takes that are not stored.
    full = {"origin": tab.server.url, "quotaSize": 100}
    devtools = page.context.new_cdp_session(page)
    devtools.send("Storage.overrideQuotaForOrigin", full)
    page.set_input_files("#file", take)
    expect(page.locator("#takes-kept")).to_have_text(
        "No space is left: “Scale” is not kept. Delete takes."
    )
    assert tab.run(KEPT) is False
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": tab.server.url})
    raise_all_notes(tab)
    tab.until(KEPT)
    expect(page.locator("#takes-kept")).to_contain_text("Kept in this browser")
    # A tab does not overwrite the takes of another tab.
    other = Tab(page.context.new_page(), tab.server)
    expect(other.page.locator("#takes li")).to_have_count(1)
    raise_all_notes(other)
    other.until(KEPT)
    page.locator("#roll").press("ArrowUp")
    expect(page.locator("#takes .take-name")).to_have_text("Scale (2)")
    expect(page.locator("#status")).to_contain_text("Both versions are kept")
    tab.until(KEPT)
    other.page.reload()
    names = other.page.locator("#takes .take-name")
    expect(names).to_have_count(2)
    assert sorted(names.all_inner_texts()) == ["Scale", "Scale (2)"]
    assert other.console_errors == []
    other.page.close()


PROGRAMS_OF_JSON = """async (data) => {
  const { openTake } = await import('./notes/opening.js');
  return (await openTake(new File([JSON.stringify(data)], 'a.json'))).programs;
}"""


def test_json_of_the_service_has_programs(bench: Tab) -> None:
    notes = [{"pitch": 60, "onset_s": 0, "offset_s": 1, "instrument": "violin"}]
    data = {"notes": notes, "instruments": {"violin": 40}}
    assert bench.run(PROGRAMS_OF_JSON, data) == {"violin": 40}
