"""The list of takes: names, deletion, what is not saved, and the way out of the page by hand."""

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, expect

from tests.service.page.browser import IDLE, Tab, notes_of, pitches_of, saved
from tests.service.page.conftest import PITCHES


def raise_all_notes(tab: Tab) -> None:
    """Edit: every note of the take, by a semitone."""
    tab.press("Edit")
    tab.page.locator("#roll").focus()
    tab.page.keyboard.press("Control+a")
    tab.page.keyboard.press("ArrowUp")


def test_a_take_is_renamed_saved_and_deleted(tab: Tab, recording: Path, tmp_path: Path) -> None:
    page = tab.page
    asked: list[tuple[str, str]] = []

    def answer(dialog: Dialog) -> None:
        asked.append((dialog.type, dialog.message))
        if dialog.type == "confirm" and len(asked) == 1:
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", answer)
    tab.upload(recording)
    take = page.locator("#takes li")
    tab.press(f"Rename: {recording.name}")
    page.keyboard.type("Scale in A: slow")
    page.keyboard.press("Enter")
    expect(page.locator("#take-name")).to_have_text("Scale in A: slow")
    assert page.evaluate("document.activeElement.className") == "take-choose"
    tab.press("Rename: Scale in A: slow")
    page.keyboard.type("another")
    page.keyboard.press("Escape")
    expect(take).to_contain_text("Scale in A: slow")

    tab.press("Delete: Scale in A: slow")  # kept: the question was not answered with yes
    expect(take).to_have_count(1)
    assert asked == [("confirm", "Delete “Scale in A: slow”? It was not downloaded.")]


def test_what_is_saved_goes_without_a_question(tab: Tab, recording: Path, tmp_path: Path) -> None:
    page = tab.page

    def refuse(dialog: Dialog) -> None:
        tab.complaints.append(f"asked: {dialog.message}")
        dialog.accept()

    page.on("dialog", refuse)
    tab.upload(recording, recording)
    midi = tab.download()
    assert pitches_of(saved(midi, tmp_path)) == PITCHES
    first, second = page.locator("#takes li").all()
    second.locator(".take-choose").click()

    dragged: str = tab.run("""() => {
      const row = document.querySelector('#takes li.chosen[draggable=true]');
      const dataTransfer = new DataTransfer();
      row.dispatchEvent(new DragEvent('dragstart', { dataTransfer }));
      Object.defineProperty(dataTransfer, 'dropEffect', { value: 'copy' });
      row.dispatchEvent(new DragEvent('dragend', { dataTransfer }));
      return dataTransfer.getData('DownloadURL');
    }""")
    head, _, data = dragged.partition("base64,")
    assert head == f"audio/midi:{recording.stem}.mid:data:audio/midi;"
    path = tmp_path / "dragged.mid"
    path.write_bytes(base64.b64decode(data))
    assert pitches_of(path) == PITCHES

    second.locator(".delete").click()
    expect(page.locator("#takes li")).to_have_count(1)
    expect(page.locator("#note-count")).to_have_text("4 notes")
    first.locator(".delete").click()
    expect(page.locator("#takes-panel")).to_be_hidden()
    expect(page.locator("#empty")).to_be_visible()
    page.wait_for_selector(IDLE)
    page.reload()


def test_takes_survive_a_reload_with_edits_and_sound(tab: Tab, recording: Path) -> None:
    page = tab.page
    tab.upload(recording)
    raise_all_notes(tab)
    tab.press(f"Rename: {recording.name}")
    page.keyboard.type("Mended")
    page.keyboard.press("Enter")
    kept = "async () => (await import('./app.js')).stage.take.kept"
    tab.until(kept)
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
    page.wait_for_timeout(300)
    page.reload()
    tab.run("async () => (await import('./app.js')).restored")
    expect(page.locator("#takes-panel")).to_be_hidden()


def test_a_take_that_listens_survives_a_crash(tab: Tab) -> None:
    page = tab.page
    tab.listen()
    tab.wait_for_notes(2)
    tab.until("async () => (await import('./app.js')).stage.take.stored")
    again = page.context.new_page()  # a crash: the first page has written no more
    again.goto(tab.server.url)
    expect(again.locator("#takes li")).to_contain_text("Live")
    expect(again.locator("#note-count")).not_to_have_text("0 notes")


def test_saved_takes_and_midi_are_opened_again(tab: Tab, recording: Path, tmp_path: Path) -> None:
    page = tab.page
    tab.upload(recording)
    raise_all_notes(tab)
    moved = [pitch + 1 for pitch in PITCHES]
    json_file = saved(tab.download("Download JSON"), tmp_path)
    midi = saved(tab.download(), tmp_path)
    assert pitches_of(midi) == moved
    state = """async () => {
      const { take } = (await import('./app.js')).stage;
      const { heard, recording } = take;
      return [take.notes.map(({ pitch }) => pitch), heard?.notes.map(({ pitch }) => pitch) ?? null,
        Boolean(recording)];
    }"""
    page.set_input_files("#file", [json_file])
    expect(page.locator("#takes li")).to_have_count(2)
    assert tab.run(state) == [moved, PITCHES, False]
    sound = tmp_path / f"{midi.stem}.wav"
    sound.write_bytes(recording.read_bytes())
    page.set_input_files("#file", [midi, sound])
    expect(page.locator("#takes li")).to_have_count(3)
    assert tab.run(state) == [moved, None, True]
    onsets = "async () => (await import('./app.js')).stage.take.notes.map(({ onset }) => onset)"
    expected = [note["onset_s"] for note in notes_of(json_file)]
    assert tab.run(onsets) == pytest.approx(expected, abs=2e-3)
    letter = tmp_path / "letter.mid"
    letter.write_text("Dear musician")
    page.set_input_files("#file", [letter])
    expect(page.locator("#status")).to_contain_text("letter.mid is no take")


KEPT = "async () => (await import('./app.js')).stage.take.kept"


def test_tabs_and_a_full_disk_lose_nothing_silently(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    take = tmp_path / "scale.json"
    notes = [{"pitch": 60 + n % 4, "onset_s": n, "offset_s": n + 1} for n in range(400)]
    take.write_text(json.dumps({"notes": notes, "name": "Scale.wav"}))
    # Without space the page states what is not kept, until it is.
    full = {"origin": tab.server.url, "quotaSize": 100}
    devtools = page.context.new_cdp_session(page)
    devtools.send("Storage.overrideQuotaForOrigin", full)
    page.set_input_files("#file", take)
    expect(page.locator("#takes-kept")).to_have_text(
        "No space is left: “Scale.wav” is not kept. Delete takes."
    )
    assert tab.run(KEPT) is False
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": tab.server.url})
    raise_all_notes(tab)
    tab.until(KEPT)
    expect(page.locator("#takes-kept")).to_contain_text("Kept in this browser")
    # A tab does not overwrite what another tab has written.
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
    assert sorted(names.all_inner_texts()) == ["Scale (2)", "Scale.wav"]
    assert other.complaints == []
    other.page.close()
