"""Tests of practising (speed, count-in, transposition, loops) and of editing beats."""

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.service.page.browser import Tab
from tests.service.page.conftest import BEAT_S

BEATS = """async () => (await import('./app.js')).stage.take.beats.map(
  ({ time_s, place, beats_per_bar }) => [time_s, place, beats_per_bar])"""
SPEED = "async () => (await import('./state/store.js')).store.get('speed')"
PITCHES = "async () => (await import('./app.js')).stage.take.notes.map((note) => note.pitch)"


def test_practice_changes_speed_pitch_and_hand(tab: Tab, tune: Path) -> None:
    tab.upload(tune)
    page = tab.page
    tab.run("""() => {
      window.media = [];
      const play = HTMLMediaElement.prototype.play;
      HTMLMediaElement.prototype.play = function () {
        media.push([this.playbackRate, this.preservesPitch, this]);
        return play.call(this);
      };
      window.clicks = [];
      const start = OscillatorNode.prototype.start;
      OscillatorNode.prototype.start = function (when) {
        if ([1200, 1800].includes(this.frequency.value)) clicks.push(when);
        start.call(this, when);
      };
    }""")
    tab.press("Practise")
    page.locator("#speed").select_option("50 %")
    page.locator("#metronome").check()
    page.locator("#count-in").check()
    tab.press("Play")
    page.wait_for_function("() => media.length > 0 && media[0][2].currentTime > 0.2")
    # The recording plays at the take's position, at half speed and at its original pitch.
    rate, keeps_pitch, difference_s = tab.run("""async () => {
      const { player } = (await import('./app.js')).stage;
      const [rate, keeps, audio] = media[0];
      return [rate, keeps, Math.abs(player.position - audio.currentTime)];
    }""")
    assert (rate, keeps_pitch) == (0.5, True)
    assert difference_s < 0.25
    page.wait_for_function("() => clicks.length >= 6")
    # The metronome follows changed beats.
    tab.press("Edit")
    tab.press("Twice the tempo")
    count = tab.run("() => clicks.length")
    page.wait_for_function("(count) => clicks.length >= count + 3", arg=count)
    tab.press("Pause")
    tab.press("Undo")
    tab.press("Edit")
    clicks_s = tab.run("() => clicks")
    assert np.diff(clicks_s[:4]) == pytest.approx(2 * BEAT_S, rel=0.15)
    assert np.diff(clicks_s).min() > 0.5 * BEAT_S
    # Transposition applies to the notes and their names, and can be undone.
    tab.press("A semitone higher")
    assert tab.run(PITCHES)[0] == 58
    expect(page.locator("#transposed")).to_have_text("+1")
    page.locator("summary", has_text="List").click()
    page.locator("#naming").select_option("German")
    expect(page.locator("#notes td").first).to_have_text("B3")
    tab.press("A semitone lower")
    expect(page.locator("#notes td").first).to_have_text("A3")
    # Only the notes of one hand are shown.
    page.locator("#hand").select_option("Left hand")
    expect(page.locator("#notes tr")).to_have_count(4)
    # Closing the practice bar resets all of it.
    assert tab.run(SPEED) == 0.5
    tab.press("Practise")
    expect(page.locator("#notes tr")).to_have_count(16)
    assert tab.run(SPEED) == 1
    tab.press("Practise")
    page.locator("#hand").select_option("Both hands")
    # A loop starts and ends at a bar line.
    tab.run("async () => (await import('./app.js')).stage.roll.zoom(0.4, 5)")
    tab.press("Loop")
    passage, bars = tab.run("""async () => {
      const { player, take } = (await import('./app.js')).stage;
      const bars = take.beats.filter(({ place }) => place === 0).map(({ time_s }) => time_s);
      return [player.passage, bars];
    }""")
    assert passage["start"] in bars
    assert passage["end"] in bars


def test_transposition_out_of_range_is_not_counted(tab: Tab, tmp_path: Path) -> None:
    take = tmp_path / "high.json"
    take.write_text('{"notes": [{"pitch": 127, "onset_s": 0, "offset_s": 1}]}')
    tab.page.set_input_files("#file", take)
    tab.press("Practise")
    transposed = tab.page.locator("#transposed")
    for step, total in (("higher", "0"), ("lower", "-1")):
        tab.press(f"A semitone {step}")
        expect(transposed).to_have_text(total)
    assert tab.run(PITCHES) == [126]


EDITED_DURING_THE_COUNT_IN = """async () => {
  const { player, take } = (await import('./app.js')).stage;
  const { store } = await import('./state/store.js');
  store.set({ countIn: true });
  const first = new Promise((resolve) => {
    player.addEventListener('note', ({ detail }) => resolve(detail.note.pitch), { once: true });
  });
  await player.seek(2.5);
  await player.play({ countsIn: true });
  player.refresh(); // as after an edit
  return Promise.race([first, new Promise((resolve) => setTimeout(resolve, 60_000))]);
}"""


def test_edit_during_the_count_in_plays_no_earlier_notes(tab: Tab, tmp_path: Path) -> None:
    take = tmp_path / "scale.json"
    notes = [{"pitch": 60 + n, "onset_s": n, "offset_s": n + 0.9} for n in range(6)]
    beats = [{"time_s": n, "place": n % 3, "beats_per_bar": 3} for n in range(6)]
    take.write_text(json.dumps({"notes": notes, "beats": beats}))
    tab.page.set_input_files("#file", take)
    expect(tab.page.locator("#takes li")).to_have_count(1)
    tab.press("Play")  # browsers start sound only for a user
    tab.press("Pause")
    assert tab.run(EDITED_DURING_THE_COUNT_IN) == 63


def test_beats_are_corrected(tab: Tab, tune: Path) -> None:
    tab.upload(tune)
    page = tab.page
    tab.press("Edit")
    before = tab.run(BEATS)
    page.locator("#metre").select_option("3")
    assert {row[2] for row in tab.run(BEATS)} == {3}
    tab.press("Twice the tempo")
    assert len(tab.run(BEATS)) == 2 * len(before) - 1
    tab.press("Half the tempo")
    assert [row[0] for row in tab.run(BEATS)] == pytest.approx([row[0] for row in before])
    tab.slide("#seek", before[5][0])
    tab.press("One here")
    assert [row[1] for row in tab.run(BEATS)][5:9] == [0, 1, 2, 0]
    for _ in range(4):
        tab.press("Undo")
    assert tab.run(BEATS) == before
    expect(page.locator("#metre")).to_have_value("4")
    page.locator("#metre").select_option("6/8")
    assert {row[2] for row in tab.run(BEATS)} == {2}
    expect(page.locator("#metre")).to_have_value("6/8")
    # The score has the edited beats and notes.
    page.locator("#metre").select_option("3")
    page.locator("#roll").focus()
    page.keyboard.press("Control+a")
    page.keyboard.press("ArrowUp")
    with page.expect_request("**/score*") as request:
        page.get_by_role("tab", name="Score").click()
    sent = request.value.post_data_json or {}
    assert {beat["beats_per_bar"] for beat in sent["beats"]} == {3}
    assert [note["pitch"] for note in sent["notes"]] == [58, 70, 82, 70] * 4


BEAT_FUNCTIONS = """async () => {
  const { dragged, halved, onGrid, tapped, withMetre, withTap, withDownbeatAt } =
    await import('./edit/beats.js');
  const { changeBeats } = await import('./edit/commands.js');
  const { Take } = await import('./notes/take.js');
  const beats = withDownbeatAt(tapped([1, 1.5, 2], 6, { beats_per_bar: 4, subdivision: 2 }), 1);
  const moved = dragged(beats, beats.findIndex(({ place, time_s }) => !place && time_s === 3), 3.2);
  const take = Object.assign(new Take(''), { live: false });
  take.edit(changeBeats('Tapped tempo', [], beats), { again: true }); // the first tap was undone
  const tapping = Object.assign(new Take(''), { live: false, beats });
  for (const times of [[0, 1], [0, 1, 2]]) {
    const command = changeBeats('Tapped tempo', tapping.beats, tapped(times, 6, beats[0]));
    tapping.edit(command, { again: true });
  }
  tapping.undo();
  const compound = withMetre(beats, { beats_per_bar: 2, subdivision: 3 });
  return {
    edits: take.history.done.length,
    untapped: tapping.beats === beats,
    eighths: [0.17, 0.33].map((time) => onGrid(compound, time).time),
    halved: halved(withDownbeatAt(beats, 0.5)).map(({ time_s, place }) => [time_s, place]),
    beats: beats.map(({ time_s, place }) => [time_s, place]),
    moved: moved.map(({ time_s }) => time_s),
    taps: [0, 0.5, 1, 9].reduce(withTap, []),
  };
}"""


def test_tapped_beats_and_dragged_bar_lines(bench: Tab) -> None:
    result = bench.run(BEAT_FUNCTIONS)
    assert result["beats"][:4] == [[0, 2], [0.5, 3], [1, 0], [1.5, 1]]
    expected = [0, 0.5, 1, 1.55, 2.1, 2.65, 3.2, 3.65, 4.1, 4.55, 5, 5.5, 6]
    assert result["moved"] == pytest.approx(expected)
    assert result["taps"] == [9]
    assert result["halved"][:3] == [[0.5, 0], [1.5, 1], [2.5, 2]]  # the first bar line is preserved
    assert result["edits"] == 1
    assert result["untapped"]
    assert result["eighths"] == pytest.approx([1 / 6, 1 / 3])  # eighths of a dotted quarter
