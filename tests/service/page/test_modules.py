"""The page's modules one by one, run inside the browser: files they read, words they say."""

import io
from fractions import Fraction

import numpy as np
import pretty_midi
import pytest

from service.audio.pcm import BLOCKS_PER_S, Downmix
from service.score.quantise import QuantisedNote
from service.score.staves import hands
from tests.service.page.browser import Tab

MIDI_OF = """async ([notes, beats, key]) => {
  const { midiFile } = await import('./notes/midi.js');
  return [...midiFile(notes, { beats, key })];
}"""


@pytest.mark.parametrize("subdivision", [2, 3])
def test_midi_is_written_in_the_beats(bench: Tab, subdivision: int) -> None:
    times_s = [0.4 + 0.5 * n + 0.02 * (n % 3) for n in range(24)]
    beats = [
        {"time_s": t, "place": n % 3, "beats_per_bar": 3, "subdivision": subdivision}
        for n, t in enumerate(times_s)
        if n not in (7, 8)  # fields to fill in
    ]
    notes = [
        {"pitch": 60, "velocity": 64, "instrument": None, "onset": t, "offset": t + 0.2}
        for t in (0.1, *times_s, 14.0)
    ]
    content = bytes(bench.run(MIDI_OF, [notes, beats, "F#m"]))
    midi = pretty_midi.PrettyMIDI(io.BytesIO(content))
    onsets_s = [note.start for note in midi.instruments[0].notes]
    assert onsets_s == pytest.approx([note["onset"] for note in notes], abs=2e-3)
    (bar,) = (change for change in midi.time_signature_changes if change.time > 0)
    assert (bar.numerator, bar.denominator) == ((3, 4) if subdivision == 2 else (9, 8))
    assert midi.get_downbeats()[1:8] == pytest.approx(times_s[:21:3], abs=0.03)
    assert midi.key_signature_changes[0].key_number == 18  # F sharp minor


@pytest.mark.parametrize("channels", [2, 6])
def test_the_microphone_is_mixed_as_the_service_mixes(bench: Tab, channels: int) -> None:
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


def test_names_of_files_and_instruments_are_for_people(bench: Tab) -> None:
    names = bench.run(
        """async (names) => {
          const { stemOf } = await import('./notes/saving.js');
          const { instrumentOf, labelOf } = await import('./notes/instruments.js');
          const labels = ['plucked', 'violin'].map(labelOf);
          return [names.map((name) => stemOf({ name })), labels, instrumentOf('Guitar')];
        }""",
        ["Mr. Brightside", "take 2.flac", "a/b.c"],
    )
    assert names == [["Mr. Brightside", "take 2", "a.b.c"], ["guitar", "violin"], "plucked"]


def test_a_pause_ends_as_soon_as_the_server_is_free(bench: Tab) -> None:
    """Starting at first, then full, then free: long before the pause would end by itself."""
    asked = bench.run(
        """async () => {
          const { pauseUntilFree } = await import('./service/ready.js');
          const fetched = window.fetch;
          const answers = [[503, {}], [200, { sessions: 1, max_sessions: 1 }],
            [200, { sessions: 0, max_sessions: 1 }]];
          const asked = [];
          window.fetch = async (url) => {
            asked.push(new URL(url).pathname);
            const [status, body] = answers[asked.length - 1];
            return new Response(JSON.stringify(body), { status });
          };
          try {
            await pauseUntilFree(600);
          } finally {
            window.fetch = fetched;
          }
          return asked;
        }"""
    )
    assert asked == ["/readyz"] * 3


def test_hands_are_divided_as_in_the_score(bench: Tab) -> None:
    """Nearly: the page decides from chord to chord, the service over the whole piece."""
    notes = []
    for beat in range(48):
        right, left = 72 + int(6 * np.sin(beat / 5)), 48 + int(8 * np.sin(beat / 7))
        for pitch in sorted({right, right + 4 * (beat % 2), left, left + 7 * (beat % 3 > 0)}):
            notes.append(QuantisedNote(pitch, Fraction(beat), Fraction(1)))
    right_hand, _ = hands(notes)
    divided = bench.run(
        """async (notes) => {
          const { handsOf } = await import('./practise/hands.js');
          const found = handsOf(notes);
          return notes.map((note) => found.get(note));
        }""",
        [{"pitch": note.pitch, "onset": 0.5 * float(note.onset)} for note in notes],
    )
    written = ["right" if note in right_hand else "left" for note in notes]
    assert sum(a == b for a, b in zip(divided, written, strict=True)) >= 0.9 * len(notes)


def test_time_goes_on_while_there_is_no_sound(bench: Tab) -> None:
    """Firefox gives no channels while all are silent, other browsers if there is no source."""
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
          await Promise.race([last, new Promise((resolve) => setTimeout(resolve, 10_000))]);
          return samples;
        }"""
    )
    assert samples == 8000


OPENED_BEATS = """async (late) => {
  const { midiFile } = await import('./notes/midi.js');
  const { takeOfMidi } = await import('./notes/opening.js');
  const beats = Array.from({ length: 24 }, (_, n) =>
    ({ time_s: n / 2, place: n % 3, beats_per_bar: 3, subdivision: 2 }));
  const notes = beats.map(({ time_s: onset }, n) =>
    ({ pitch: 60, velocity: 64, instrument: null, onset: onset + late * n, offset: onset + 0.5 }));
  return takeOfMidi(midiFile(notes, { beats }).buffer, 'waltz').beats.map((b) => b.beats_per_bar);
}"""


def test_beats_of_a_midi_file_are_kept_if_its_notes_are_on_them(bench: Tab) -> None:
    assert set(bench.run(OPENED_BEATS, 0)) == {3}
    assert bench.run(OPENED_BEATS, 0.013) == []
