"""Tests of single JavaScript modules of the page, run in the browser."""

from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

from model.config import INSTRUMENTS
from service.audio.pcm import BLOCKS_PER_S, Downmix
from service.protocol.midi_file import PEDAL_INSTRUMENTS
from service.score.document import ScoreDocument
from service.score.live import LiveBeat
from service.score.quantise import QuantisedNote
from service.score.staves import hands
from tests.service.page.browser import Tab
from tests.service.score.music import as_notes


@pytest.mark.parametrize("start_s", [0.5, 0.9, 1.3, 1.96, 2.5, 3.7, 5.0, 9.0])
def test_bars_have_the_numbers_of_the_score(bench: Tab, start_s: float) -> None:
    """The first beat is the second of a bar. Notes may start earlier or bars later."""
    beats = [
        {"time_s": 2 + n / 2, "place": (n + 1) % 4, "beats_per_bar": 4, "subdivision": 2}
        for n in range(40)
    ]
    rows = [(start_s + n / 2, start_s + n / 2 + 0.4, 60, 80) for n in range(24)]
    reported = [LiveBeat(**beat) for beat in beats]  # type: ignore[arg-type]
    score = ScoreDocument(as_notes(np.array(rows)), reported=reported)
    second_bar = ElementTree.fromstring(score.musicxml).findall("part/measure")[1]
    before = bench.run(
        "async (all) => (await import('./edit/beats.js')).barBefore(...all)", [beats, start_s]
    )
    lines_s = [2 + n / 2 for n in (-5, -1, *range(3, 40, 4))]  # two are before the first beat
    number = before - 1 + lines_s.index(score.bars_s[1])
    assert str(number) == second_bar.get("number")


@pytest.mark.parametrize("channels", [2, 6])
def test_downmix_equals_that_of_the_service(bench: Tab, channels: int) -> None:
    rng, block = np.random.default_rng(4), 8_000 // BLOCKS_PER_S
    tone = 0.5 * np.sin(0.35 * np.arange(2 * block))
    levels = [[1.0, 1.0], [1, 0], [1, -0.9], [1e-3, -1e-3], [0, 1], [0, 0], [-1, 1], [1e-4, 0.01]]
    parts = [np.outer(tone, np.pad(pair, (0, channels - 2))) for pair in np.array(levels)]
    parts.append(rng.uniform(-0.3, 0.3, (2 * block, channels)))
    sound = np.concatenate(parts).astype(np.float32)
    mono = bench.run(
        """async (channels) => {
          const { Downmix } = await import('./audio/downmix.js');
          const downmix = new Downmix(8000);
          const mono = [];
          for (let at = 0; at < channels[0].length; at += 128) {
            mono.push(...downmix.mix(channels.map((channel) => channel.slice(at, at + 128))));
          }
          return mono;
        }""",
        sound.T.tolist(),
    )
    np.testing.assert_allclose(mono, Downmix(8_000)(sound), atol=1e-6)


def test_page_has_every_instrument_of_the_service(bench: Tab) -> None:
    colour_count, pedalled, labels = bench.run(
        """async (names) => {
          const { colourOf, hasPedal, labelOf } = await import('./notes/instruments.js');
          const colours = names.map((name) => colourOf(name, 0.6));
          return [new Set(colours).size, names.filter(hasPedal), names.map(labelOf)];
        }""",
        list(INSTRUMENTS),
    )
    assert colour_count == len(INSTRUMENTS)
    assert tuple(pedalled) == PEDAL_INSTRUMENTS
    assert {"guitar", "violin"} < set(labels)


def test_names_of_files_and_tracks_are_understood(bench: Tab) -> None:
    stems, instruments = bench.run(
        """async (names) => {
          const { stemOf } = await import('./notes/saving.js');
          const { stem } = await import('./notes/opening.js');
          const { instrumentOf } = await import('./notes/instruments.js');
          const labels = ['Guitar', 'Piano', 'Violin I'];
          return [names.map((name) => stemOf({ name: stem(name) })), labels.map(instrumentOf)];
        }""",
        ["Mr. Brightside", "take 2.flac", "a/b.c.mp3", ".."],
    )
    assert stems == ["Mr. Brightside", "take 2", "a.b.c", "take"]
    assert instruments == ["plucked", "piano", "Violin I"]


def test_unexpected_responses_to_a_recording_are_explained(bench: Tab) -> None:
    """A proxy answers with its own page. Another one cuts the response in the middle of a line."""
    messages = bench.run(
        """async () => {
          const { transcribe } = await import('./service/upload.js');
          const { signal } = new AbortController();
          const fetched = window.fetch;
          const messages = [];
          try {
            for (const [type, body] of [['text/html', '<p>Sign in.</p>'],
                ['application/x-ndjson', '{"type": "started"}\\n{"type": "no']]) {
              window.fetch = async () => new Response(body, { headers: { 'Content-Type': type } });
              await transcribe(new File(['RIFF'], 'a.wav'), () => {}, signal)
                .catch(({ message }) => messages.push(message));
            }
          } finally {
            window.fetch = fetched;
          }
          return messages;
        }"""
    )
    foreign, cut_off = messages
    assert foreign.startswith("Another page answered instead of the service.")
    assert cut_off == "The connection was lost before the end of the recording."


def test_hands_are_divided_as_in_the_score(bench: Tab) -> None:
    """The page decides chord by chord and the service over the complete piece, so 10 % of the
    notes may differ."""
    notes = []
    for beat in range(48):
        right, left = 72 + int(6 * np.sin(beat / 5)), 48 + int(8 * np.sin(beat / 7))
        for pitch in sorted({right, right + 4 * (beat % 2), left, left + 7 * (beat % 3 > 0)}):
            notes.append(QuantisedNote(pitch, Fraction(beat), Fraction(1)))
    right_hand, _ = hands(notes)
    divided = bench.run(
        """async (notes) => {
          const { handsOf } = await import('./practise/hands.js');
          const hands = handsOf(notes);
          return notes.map((note) => hands.get(note));
        }""",
        [{"pitch": note.pitch, "onset": 0.5 * float(note.onset)} for note in notes],
    )
    written = ["right" if note in right_hand else "left" for note in notes]
    assert sum(a == b for a, b in zip(divided, written, strict=True)) >= 0.9 * len(notes)


def test_worklet_counts_time_without_input(bench: Tab) -> None:
    """Browsers pass no channels to a worklet without a source, and Firefox also during silence."""
    samples = bench.run(
        """async () => {
          const context = new OfflineAudioContext(1, 8000, 8000);
          await context.audioWorklet.addModule('./audio/pcm-worklet.js');
          const worklet = new AudioWorkletNode(context, 'pcm');
          worklet.connect(context.destination);
          let samples = 0;
          const last = new Promise((resolve) => {
            worklet.port.onmessage = ({ data }) => {
              samples += data.samples;
              if (samples === 8000) resolve();
            };
          });
          await context.startRendering();
          await Promise.race([last, new Promise((resolve) => setTimeout(resolve, 60_000))]);
          return samples;
        }"""
    )
    assert samples == 8000


REOPENED_JSON = """async (bends) => {
  const { rowsOf, jsonOf } = await import('./notes/saving.js');
  const { NoteFilter } = await import('./notes/note-filter.js');
  const { openTake } = await import('./notes/opening.js');
  const { FRAME_S, Take } = await import('./notes/take.js');
  const take = new Take('a take');
  take.title = 'Arioso';
  const times = bends.map((cents, frame) => [1 + frame * FRAME_S, cents]);
  const note = { pitch: 60, velocity: 64, confidence: 1, instrument: null, onset: 1, offset: 2 };
  take.notes = [{ ...note, bends: times }, { ...note, onset: 1 + 2 * FRAME_S, bends: times }];
  take.finish();
  const opened = await openTake(new File([jsonOf(take, new NoteFilter())], 'a take.json'));
  return [opened.title, rowsOf(opened.notes).map(({ bends }) => bends)];
}"""


def test_saved_take_keeps_its_title_and_bends(bench: Tab) -> None:
    bends = [0, 12.5, -30, 41]
    assert bench.run(REOPENED_JSON, bends) == ["Arioso", [bends, bends[2:]]]


OPENED_JSON = """async (data) => {
  const { openTake } = await import('./notes/opening.js');
  const file = new File([JSON.stringify(data)], 'a.json');
  return openTake(file).then(() => 'opened', ({ message }) => message);
}"""


@pytest.mark.parametrize(
    "fields",
    [
        {"beats": [{"time_s": 0, "place": 0}]},
        {"beats": [{"time_s": None, "place": 0, "beats_per_bar": 4}]},
        {"pedal": [{"onset_s": 1, "offset_s": 0}]},
        {"programs": {"piano": "0x"}},
        {"transcribed": {"notes": [], "beats": {}}},
    ],
)
def test_invalid_json_is_not_opened(bench: Tab, fields: dict[str, object]) -> None:
    notes = [{"pitch": 60, "onset_s": 0, "offset_s": 1}]
    valid = {"beats": [{"time_s": -0.1, "place": 0, "beats_per_bar": 4}], "pedal": [], "name": 1}
    assert bench.run(OPENED_JSON, {"notes": notes, **valid}) == "opened"
    assert "a.json is not a take" in bench.run(OPENED_JSON, {"notes": notes, **valid, **fields})


UPDATED = """async () => {
  const { Take } = await import('./notes/take.js');
  const take = new Take('');
  const note = (note_id, type, time_s) =>
    ({ type, note_id, time_s, pitch: 60, instrument: 'viola' });
  for (const message of [note(0, 'note_on', 0), note(0, 'note_off', 1), note(1, 'note_on', 2)])
    take.receive(message);
  for (const note_id of [0, 1, 2])
    take.receive({ type: 'note_update', note_id, pitch: 60, instrument: 'violin' });
  return take.notes.map(({ instrument }) => instrument);
}"""


def test_update_corrects_ended_and_sounding_notes(bench: Tab) -> None:
    assert bench.run(UPDATED) == ["violin", "violin"]


JOINED = """async () => {
  const { join } = await import('./edit/commands.js');
  const note = { pitch: 60, velocity: 80, instrument: 'voice' };
  const flat = { ...note, onset: 0, offset: 1, bends: [[0, -20], [0.9, -80]] };
  const plain = { ...note, onset: 2, offset: 3 };
  const sharp = { ...note, onset: 4, offset: 5, bends: [[4, 30]] };
  const [, joined] = join([sharp, plain, flat]).pairs[0];
  return [joined.onset, joined.offset, joined.bends];
}"""


def test_joined_note_keeps_all_bends(bench: Tab) -> None:
    assert bench.run(JOINED) == [0, 5, [[0, -20], [0.9, -80], [2, 0], [4, 30]]]


TRANSPOSED = """async () => {
  const { Take } = await import('./notes/take.js');
  const { move } = await import('./edit/commands.js');
  const { jsonOf } = await import('./notes/saving.js');
  const { openTake } = await import('./notes/opening.js');
  const { NoteFilter } = await import('./notes/note-filter.js');
  const take = new Take('');
  take.notes = [{ pitch: 60, velocity: 80, confidence: 1, instrument: null, onset: 0, offset: 1 }];
  take.finish();
  take.edit({ ...move(take.notes, 0, 2), label: 'Transpose', semitones: 2 });
  const opened = await openTake(new File([jsonOf(take, new NoteFilter())], 'a.json'));
  const steps = [take.transposed, opened.transposed];
  for (const one of [take, opened]) {
    one.restoreTranscription();
    steps.push(one.transposed, one.notes[0].pitch);
    one.undo();
    steps.push(one.transposed);
  }
  return steps;
}"""


def test_transposition_is_restored_and_saved(bench: Tab) -> None:
    assert bench.run(TRANSPOSED) == [2, 2, 0, 60, 2, 0, 60, 2]
