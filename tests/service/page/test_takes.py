"""The list of takes: names, deletion, what is not saved, and the way out of the page by hand."""

import base64
from pathlib import Path

from playwright.sync_api import Dialog, expect

from tests.service.page.browser import IDLE, Tab, pitches_of, saved
from tests.service.page.conftest import PITCHES


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
    expect(take).to_contain_text("not saved")
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
    assert asked == [("confirm", "Delete “Scale in A: slow”? It is not saved.")]
    page.close(run_before_unload=True)
    page.wait_for_event("close")
    assert asked[1:] == [("beforeunload", "")]


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
    expect(first).not_to_contain_text("not saved")
    expect(second).to_contain_text("not saved")
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

    expect(second).not_to_contain_text("not saved")
    second.locator(".delete").click()
    expect(page.locator("#takes li")).to_have_count(1)
    expect(page.locator("#note-count")).to_have_text("4 notes")
    first.locator(".delete").click()
    expect(page.locator("#takes-panel")).to_be_hidden()
    expect(page.locator("#empty")).to_be_visible()
    page.wait_for_selector(IDLE)
    page.reload()
