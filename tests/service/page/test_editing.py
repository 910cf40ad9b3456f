"""Tests of editing a take by mouse, touch and keyboard."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.service.page.browser import Tab, pitches_of

NOTES = """async () => (await import('./app.js')).stage.take.notes.map(
  ({ pitch, onset, offset, velocity }) => ({ pitch, onset, offset, velocity }))"""


def notes(tab: Tab) -> list[dict[str, float]]:
    result: list[dict[str, float]] = tab.run(NOTES)
    return result


def test_notes_are_edited_by_mouse_and_keyboard(tab: Tab, recording: Path, tmp_path: Path) -> None:
    tab.upload(recording)
    page = tab.page
    tab.press("Edit")
    page.locator("#snap").uncheck()
    original = notes(tab)
    middle = (original[0]["onset"] + original[0]["offset"]) / 2
    # A drag moves a note in time and pitch, and a drag of its end stretches it.
    tab.drag(tab.point(middle, 69), tab.point(middle + 0.2, 71))
    moved = notes(tab)[0]
    assert moved["pitch"] == 71
    assert moved["onset"] == pytest.approx(original[0]["onset"] + 0.2, abs=0.02)
    # A drag that starts by deselecting the only note changes nothing.
    page.keyboard.down("Shift")
    tab.drag(tab.point(middle + 0.2, 71), tab.point(middle + 0.4, 73))
    page.keyboard.up("Shift")
    assert notes(tab)[0] == moved
    tab.drag(tab.point(moved["offset"] - 0.005, 71), tab.point(moved["offset"] + 0.1, 71))
    assert notes(tab)[0]["offset"] == pytest.approx(moved["offset"] + 0.1, abs=0.03)
    assert notes(tab)[0]["onset"] == moved["onset"]
    for _ in range(2):
        page.keyboard.press("Control+z")
    assert notes(tab) == original
    page.keyboard.press("Control+Shift+Z")
    assert notes(tab)[0]["pitch"] == 71
    page.keyboard.press("Control+z")
    # A double click adds a note, a marquee selects notes, and Delete deletes them.
    page.mouse.dblclick(*tab.point(2.9, 75))
    assert [n["pitch"] for n in notes(tab)].count(75) == 1
    page.mouse.dblclick(*tab.point(-0.01, 77))  # left of the start
    assert [n["onset"] for n in notes(tab) if n["pitch"] == 77] == [0]
    page.keyboard.press("Control+z")
    tab.drag(tab.point(1.1, 84), tab.point(2.5, 56))
    expect(page.locator("#edit-count")).to_have_text("2 selected")
    page.keyboard.press("Delete")
    assert sorted(n["pitch"] for n in notes(tab)) == [69, 69, 75]
    expect(page.locator("#roll")).to_have_attribute("data-note-count", "3")
    assert sorted(pitches_of(tab.download(tmp_path))) == [69, 69, 75]
    tab.press("Restore")
    assert notes(tab) == original
    tab.press("Undo")
    assert len(notes(tab)) == 3
    # A click beside the notes sets the position at which N adds a note and Shift+N splits notes.
    # An empty velocity changes nothing.
    page.mouse.click(*tab.point(2.0, 84))
    expect(page.locator("#position")).to_have_text("0:02.0")
    page.locator("#roll").press("n")
    before = notes(tab)
    page.locator("#edit-velocity").fill("")
    page.locator("#roll").press("Shift+N")
    assert notes(tab) == before
    expect(page.locator("#edit-count")).to_have_text("2 selected")
    # The keyboard also works while nothing has the focus.
    page.locator("h1").click()
    page.keyboard.press("ArrowUp")
    assert notes(tab) != before
    page.keyboard.press("Control+z")
    assert notes(tab) == before
    # Shortcuts also work after the use of a button, a checkbox or a slider beside the roll.
    page.locator("#snap").check()
    page.keyboard.press("Control+a")
    page.locator("#seek").focus()
    page.keyboard.press("Delete")
    assert notes(tab) == []
    page.get_by_role("button", name="Edit", exact=True).focus()
    page.keyboard.press("Control+z")
    assert notes(tab) == before


def test_notes_are_edited_by_touch(tab: Tab, recording: Path) -> None:
    tab.upload(recording)
    page = tab.page
    tab.press("Edit")
    before = notes(tab)
    x, y = tab.point(1.4, 81)
    row = tab.point(1.4, 80)[1] - y

    def tap(*at: float) -> None:
        tab.touch("touchStart", (at[0], at[1]))
        tab.touch("touchEnd")

    # A finger may miss a note by some pixels.
    tap(x, y - row / 2 - 9)
    expect(page.locator("#edit-count")).to_contain_text("A5 at 0:01")
    # A tap beside the notes deselects them. One finger that scrolls does not.
    tab.touch("touchStart", tab.point(2.8, 80))
    tab.touch("touchMove", tab.point(2.7, 80))
    tab.touch("touchEnd")
    expect(page.locator("#edit-count")).to_contain_text("A5 at 0:01")
    tap(*tab.point(2.8, 80))
    expect(page.locator("#edit-count")).not_to_contain_text("A5")
    tap(*tab.point(1.4, 81))
    expect(page.locator("#edit-count")).to_contain_text("A5 at 0:01")
    # A second finger zooms the roll and cancels the drag of the first finger.
    tab.touch("touchStart", (x, y))
    tab.touch("touchMove", (x + 30, y))
    assert notes(tab) != before
    tab.touch("touchStart", (x + 30, y), (x + 130, y))
    span = tab.view["span"]
    tab.touch("touchMove", (x + 30, y), (x + 230, y))
    tab.touch("touchEnd")
    assert notes(tab) == before
    assert tab.view["span"] < span
    # Touch selects several notes by taps or by a drag around them.
    tab.press("Fit")
    tab.run("async () => (await import('./state/store.js')).store.set({ several: true })")
    tap(*tab.point(2.8, 69))
    expect(page.locator("#edit-count")).to_have_text("2 selected")
    tab.touch("touchStart", tab.point(0.2, 84))
    tab.touch("touchMove", tab.point(3.2, 55))
    tab.touch("touchEnd")
    expect(page.locator("#edit-count")).to_have_text("4 selected")


def test_note_list_is_edited_by_keyboard(tab: Tab, recording: Path) -> None:
    tab.upload(recording)
    page = tab.page
    tab.press("Edit")
    page.locator("summary", has_text="List").click()
    row = page.locator("#notes tr").nth(1).get_by_role("button")
    row.focus()
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("]")
    expect(page.locator("#notes tr").nth(1)).to_contain_text("A♯5")
    before = notes(tab)
    expect(page.locator("#notes [aria-pressed=true]")).to_be_focused()
    page.keyboard.press("s")
    assert len(notes(tab)) == 5
    page.keyboard.press("j")
    assert notes(tab) == before
    page.keyboard.press("Backspace")
    assert [n["pitch"] for n in notes(tab)] == [69, 57, 69]
    expect(page.locator("#notes tr").nth(1).get_by_role("button")).to_be_focused()
    # An edit that changes nothing, because the range ends, is no step of undo.
    page.keyboard.press("Control+a")
    for _ in range(40):
        page.keyboard.press("]")
    assert {n["velocity"] for n in notes(tab)} == {127}
    page.keyboard.press("Control+z")
    assert min(n["velocity"] for n in notes(tab)) < 127


def test_take_gets_its_first_note_or_has_only_sound(
    tab: Tab, recording: Path, tmp_path: Path
) -> None:
    page = tab.page
    take = tmp_path / f"{recording.stem}.json"
    take.write_text(json.dumps({"notes": [], "duration_s": 3}))
    page.set_input_files("#file", take)
    tab.press("Edit")
    play = page.get_by_role("button", name="Play", exact=True)
    expect(play).to_be_disabled()
    tab.press("Add")
    expect(play).to_be_enabled()
    expect(page.locator("#save-midi")).to_be_enabled()
    tab.press("Undo")
    expect(play).to_be_disabled()
    page.set_input_files("#file", [take, recording])
    expect(page.locator("#save-wav")).to_be_enabled()
    play.click()
    expect(page.locator("#position")).not_to_have_text("0:00.0")


COMMANDS = """async ([seed, count]) => {
  const { add, applied, History, inverse, join, move, remove, split, stretch, louder } =
    await import('./edit/commands.js');
  let state = seed;
  const random = (n) => (state = (state * 1103515245 + 12345) % 2147483648) % n;
  const fresh = () => ({ pitch: 40 + random(40), velocity: 1 + random(127), confidence: 1,
    instrument: random(2) ? 'piano' : null, onset: random(100) / 10, offset: 11 + random(9) });
  let notes = applied([], { pairs: Array.from({ length: 20 }, () => [null, fresh()]) });
  const start = JSON.stringify(notes);
  const history = new History();
  const snapshots = [start];
  for (let step = 0; step < count; step += 1) {
    const some = notes.filter(() => random(3) === 0);
    if (!some.length) some.push(notes[0]);
    const command = [
      () => add(fresh()), () => remove(some.slice(0, 1)),
      () => move(some, random(9) - 4, random(9) - 4),
      () => stretch(some, random(2) ? 'onset' : 'offset', random(5) - 2), () => split(some, 10.5),
      () => join(some), () => louder(some, random(60) - 30),
    ][random(7)]();
    notes = applied(notes, command);
    history.push(command);
    snapshots.push(JSON.stringify(notes));
  }
  const sorted = (text) => JSON.stringify(JSON.parse(text).map((n) => JSON.stringify(n)).sort());
  const bad = [];
  for (let step = count; step > 0; step -= 1) {
    notes = applied(notes, history.undo());
    if (sorted(JSON.stringify(notes)) !== sorted(snapshots[step - 1])) bad.push(`undo ${step}`);
  }
  for (let step = 1; step <= count; step += 1) {
    notes = applied(notes, history.redo());
    if (sorted(JSON.stringify(notes)) !== sorted(snapshots[step])) bad.push(`redo ${step}`);
    if (notes.some((n, i) => i && n.onset < notes[i - 1].onset)) bad.push(`order ${step}`);
    const wrong = ({ onset, offset, pitch }) => offset <= onset || pitch < 0 || pitch > 127;
    if (notes.some(wrong)) bad.push(`note ${step}`);
  }
  return bad;
}"""


def test_every_command_can_be_undone_and_redone(bench: Tab) -> None:
    for seed in range(1, 9):
        assert bench.run(COMMANDS, [seed, 60]) == []
