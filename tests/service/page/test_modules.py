"""Tests of single JavaScript modules of the page, run in the browser."""

import io
from fractions import Fraction
from xml.etree import ElementTree

import mido
import numpy as np
import pretty_midi
import pytest

from model.config import INSTRUMENTS
from service.audio.pcm import BLOCKS_PER_S, Downmix
from service.protocol.midi_file import FRAME_S, PEDAL_INSTRUMENTS
from service.protocol.midi_file import midi_file as service_midi_file
from service.score.document import ScoreDocument
from service.score.live import LiveBeat
from service.score.quantise import QuantisedNote
from service.score.staves import hands
from tests.service.page.browser import Tab
from tests.service.protocol.test_midi_file import BentNote, synthesise
from tests.service.score.music import as_notes

MIDI_OF = """async ([notes, beats]) => {
  const { midiFile } = await import('./notes/midi.js');
  return [...midiFile(notes, { beats })];
}"""


@pytest.mark.parametrize("subdivision", [2, 3])
def test_midi_file_follows_the_beats(bench: Tab, subdivision: int) -> None:
    times_s = [0.4 + 0.5 * n + 0.02 * (n % 3) for n in range(24)]
    beats = [
        {"time_s": t, "place": n % 3, "beats_per_bar": 3, "subdivision": subdivision}
        for n, t in enumerate(times_s)
        if n not in (7, 8)  # a gap that the page fills
    ]
    notes = [
        {"pitch": 60, "velocity": 64, "instrument": None, "onset": t, "offset": t + 0.2}
        for t in (0.1, *times_s, 14.0)
    ]
    content = bytes(bench.run(MIDI_OF, [notes, beats]))
    midi = pretty_midi.PrettyMIDI(io.BytesIO(content))
    onsets_s = [note.start for note in midi.instruments[0].notes]
    assert onsets_s == pytest.approx([note["onset"] for note in notes], abs=2e-3)
    (bar,) = (change for change in midi.time_signature_changes if change.time > 0)
    assert (bar.numerator, bar.denominator) == ((3, 4) if subdivision == 2 else (9, 8))
    assert midi.get_downbeats()[1:8] == pytest.approx(times_s[:21:3], abs=0.03)


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


@pytest.mark.parametrize(
    "seconds",
    [
        (1.0, 21.0, 61.0, 62.0, 63.0),  # a tempo event has at most 16.8 s per quarter note
        (-0.6, -0.3, 0.0, 0.3, 0.6, 0.9),  # a pickup starts before the take
    ],
)
def test_unusual_beats_do_not_change_times(bench: Tab, seconds: tuple[float, ...]) -> None:
    beats = [
        {"time_s": time_s, "place": n % 4, "beats_per_bar": 4, "subdivision": 2}
        for n, time_s in enumerate(seconds)
    ]
    played_s = [time_s for time_s in seconds if time_s >= 0]
    notes = [{"pitch": 60, "velocity": 64, "onset": s, "offset": s + 0.2} for s in played_s]
    midi = pretty_midi.PrettyMIDI(io.BytesIO(bytes(bench.run(MIDI_OF, [notes, beats]))))
    onsets_s = [note.start for note in midi.instruments[0].notes]
    assert onsets_s == pytest.approx(played_s, abs=0.03)


BENT_MIDI_OF = """async ([notes, pedal, programs]) => {
  const { split, applied, louder } = await import('./edit/commands.js');
  const { midiFile } = await import('./notes/midi.js');
  const untouched = [...midiFile(notes, { pedal, programs })];
  let edited = applied(notes, split(notes.slice(0, 1), 1));
  edited = applied(edited, louder(edited.slice(0, 1), 20));
  return [untouched, [...midiFile(edited, { pedal, programs })]];
}"""


def test_edited_notes_keep_their_bends_in_midi_files(bench: Tab) -> None:
    """The page writes the channels, bends and pedal that the service writes."""
    curve = [40 * np.sin(frame / 9) for frame in range(86)]
    programs = {"piano": 0, "violin": 40}
    notes = [
        BentNote(60, 0.5, 1.5, tuple(curve), "violin"),
        BentNote(64, 0.6, 1.5, None, "piano"),
        BentNote(57, 0.7, 1.2, (-20.0,) * 30, "violin"),
        *(BentNote(70 + n % 5, 2 + n / 10, 2.3 + n / 10, (3.0 * n,), "violin") for n in range(40)),
        *(BentNote(40 + n, 8 + n / 10, 12 + n / 10, (2.0 * n,), "violin") for n in range(20)),
    ]
    rows = [
        {
            "pitch": note.pitch,
            "velocity": note.velocity,
            "confidence": 1,
            "instrument": note.instrument,
            "onset": note.onset_s,
            "offset": note.offset_s,
            "bends": [(note.onset_s + n * FRAME_S, c) for n, c in enumerate(note.bends or ())],
        }
        for note in notes
    ]
    pedal = [{"onset": 0.2, "offset": 1.0}, {"onset": 1.3, "offset": 3.0}]
    written, edited = map(bytes, bench.run(BENT_MIDI_OF, [rows, pedal, programs]))
    changes = [(p[end], end == "onset") for p in pedal for end in ("onset", "offset")]
    expected = synthesise(service_midi_file(notes, changes, programs))
    for found, note in zip(synthesise(written), expected, strict=True):
        assert found[:3] == pytest.approx(note[:3], abs=0.002)
        assert [cents for _, cents in found[3]] == pytest.approx([c for _, c in note[3]], abs=1.2)
    messages = list(mido.merge_tracks(mido.MidiFile(file=io.BytesIO(written)).tracks))
    sustained = {m.channel for m in messages if m.is_cc(64) and m.value}
    assert sustained == {m.channel for m in messages if m.type == "note_on" and m.note == 64}
    # Both halves of a note that was split have their part of its bends.
    first, second = (note for note in synthesise(edited) if note[0] == 60)
    assert (first[2], second[1]) == pytest.approx((1.0, 1.0), abs=0.002)
    for time_s, cents in [*first[3], *second[3]]:
        assert cents == pytest.approx(np.interp((time_s - 0.5) / FRAME_S, range(86), curve), abs=6)
    assert min(len(first[3]), len(second[3])) > 20


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


OPENED_BEATS = """async (late) => {
  const { midiFile } = await import('./notes/midi.js');
  const { takeOfMidi } = await import('./notes/opening.js');
  const beats = Array.from({ length: 24 }, (_, n) =>
    ({ time_s: n / 2, place: n % 3, beats_per_bar: 3, subdivision: 2 }));
  const notes = beats.map(({ time_s: onset }, n) =>
    ({ pitch: 60, velocity: 64, instrument: null, onset: onset + late * n, offset: onset + 0.5 }));
  return takeOfMidi(midiFile(notes, { beats }).buffer, 'waltz').beats.map((b) => b.beats_per_bar);
}"""


def test_midi_beats_are_kept_if_notes_match(bench: Tab) -> None:
    assert set(bench.run(OPENED_BEATS, 0)) == {3}
    assert bench.run(OPENED_BEATS, 0.013) == []


REOPENED_NAMES = """async (names) => {
  const { midiFile } = await import('./notes/midi.js');
  const { takeOfMidi } = await import('./notes/opening.js');
  const notes = names.map((instrument, n) =>
    ({ pitch: 60, velocity: 64, instrument, onset: n, offset: n + 1 }));
  return takeOfMidi(midiFile(notes).buffer, '').notes.map((note) => note.instrument);
}"""


def test_long_and_accented_track_names_survive_midi(bench: Tab) -> None:
    names = ["Flöte – rechts", "Second flute " * 20]
    assert bench.run(REOPENED_NAMES, names) == [name.strip() for name in names]


SAVED_AGAIN = """async (bytes) => {
  const { midiFile } = await import('./notes/midi.js');
  const { takeOfMidi } = await import('./notes/opening.js');
  const take = takeOfMidi(Uint8Array.from(bytes).buffer, '');
  return [...midiFile(take.notes, take)];
}"""


def test_pedal_of_unknown_tracks_is_saved_again(bench: Tab) -> None:
    file, memory = mido.MidiFile(), io.BytesIO()
    for name in ("Right hand", "Left hand", "Violin"):
        track = file.add_track(name)
        track.append(mido.Message("control_change", control=64, value=127 * (name != "Violin")))
        track.append(mido.Message("note_on", note=60))
        track.append(mido.Message("note_off", note=60, time=480))
    file.save(file=memory)
    saved = mido.MidiFile(file=io.BytesIO(bytes(bench.run(SAVED_AGAIN, list(memory.getvalue())))))
    pedals = {track.name: any(m.is_cc(64) for m in track) for track in saved.tracks[1:]}
    assert pedals == {"Right hand": True, "Left hand": True, "violin": False}


OPENED_PARTS = """async (bytes) => {
  const { takeOfMidi } = await import('./notes/opening.js');
  const { notes, programs } = takeOfMidi(Uint8Array.from(bytes).buffer, '');
  return [Object.fromEntries(notes.map(({ pitch, instrument }) => [pitch, instrument])), programs];
}"""


def opened_parts(bench: Tab, file: mido.MidiFile) -> tuple[dict[str, str], dict[str, int]]:
    """Return the instrument of each pitch, and the programs."""
    memory = io.BytesIO()
    file.save(file=memory)
    names, programs = bench.run(OPENED_PARTS, [*memory.getvalue()])
    return names, programs


def test_programs_of_a_single_track_are_parts(bench: Tab) -> None:
    file = mido.MidiFile(type=0)
    track = file.add_track("Song")
    for channel, program in ((1, 25), (2, 40), (3, 40), (9, 0)):
        track.append(mido.Message("program_change", channel=channel, program=program))
    for pitch, channel in ((60, 0), (40, 1), (80, 2), (81, 3), (35, 9)):
        track.append(mido.Message("note_on", channel=channel, note=pitch))
        track.append(mido.Message("note_off", channel=channel, note=pitch, time=96))
    names, programs = opened_parts(bench, file)
    assert names == {"60": "piano", "40": "plucked", "80": "violin", "81": "violin"}
    assert programs == {"piano": 0, "plucked": 25, "violin": 40}


def test_tracks_with_equal_names_are_parts(bench: Tab) -> None:
    """The hands of a piano are one part."""
    file = mido.MidiFile()
    tracks = "Violin 40, Violin 40, Violin 40, Piano 40, Piano 40, Klavier 0, Klavier 0, 40"
    for channel, text in enumerate(tracks.split(", ")):
        *name, program = text.split()
        track = file.add_track("".join(name))
        track.append(mido.Message("program_change", channel=channel, program=int(program)))
        track.append(mido.Message("note_on", channel=channel, note=60 + channel))
        track.append(mido.Message("note_off", channel=channel, note=60 + channel, time=96))
    names, _ = opened_parts(bench, file)
    violins = ["violin", "violin 2", "violin 3"]
    pianos = ["piano", "piano", "Klavier", "Klavier"]
    assert list(names.values()) == [*violins, *pianos, "violin 4"]


OPENED_PEDAL = """async (bytes) => {
  const { takeOfMidi } = await import('./notes/opening.js');
  return takeOfMidi(Uint8Array.from(bytes).buffer, '').pedal;
}"""


def test_pedal_that_is_down_at_the_end_of_a_midi_file_is_kept(bench: Tab) -> None:
    file, memory = mido.MidiFile(), io.BytesIO()
    file.add_track().extend(
        [
            mido.Message("control_change", control=64, value=127),
            mido.Message("note_on", note=60),
            mido.Message("note_off", note=60, time=file.ticks_per_beat),
        ]
    )
    file.save(file=memory)
    assert bench.run(OPENED_PEDAL, [*memory.getvalue()]) == [{"onset": 0, "offset": 0.5}]


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


DELETED_DURING_A_WRITE = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { LiveRecording } = await import('./audio/recording.js');
  const { Take } = await import('./notes/take.js');
  const database = await new Promise((resolve) => {
    const request = indexedDB.open('takes', 1);
    request.onupgradeneeded = () => {
      for (const name of ['takes', 'audio']) request.result.createObjectStore(name);
    };
    request.onsuccess = () => resolve(request.result);
  });
  const parts = () => new Promise((resolve) => {
    const request = database.transaction('audio').objectStore('audio').count();
    request.onsuccess = () => resolve(request.result);
  });
  const take = new Take('');
  const blobs = Array.from({ length: 300 }, () => new Blob([new Uint8Array(2)]));
  take.recording = LiveRecording.of(8000, blobs);
  take.finish();
  const archive = new Archive();
  archive.follow(take, true);
  while (await parts() === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await archive.delete(take);
  const atDeletion = await parts();
  await new Promise((resolve) => setTimeout(resolve, 500));
  return [atDeletion, await parts()];
}"""


def test_take_that_is_deleted_during_a_write_leaves_no_audio(bench: Tab) -> None:
    assert bench.run(DELETED_DURING_A_WRITE) == [0, 0]


RENAMED_DURING_A_WRITE = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { Take } = await import('./notes/take.js');
  const take = new Take('old');
  take.finish();
  const { put } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.put = function (...values) {
    IDBObjectStore.prototype.put = put;
    const request = put.apply(this, values);
    take.rename('new');
    return request;
  };
  const archive = new Archive();
  archive.follow(take, true);
  await new Promise((resolve) => archive.addEventListener('kept', resolve, { once: true }));
  const isKept = take.kept;
  while (!take.kept) await new Promise((resolve) => setTimeout(resolve, 5));
  const names = (await new Archive().load()).map(({ name }) => name);
  await archive.delete(take);
  return [isKept, names];
}"""


def test_take_that_is_renamed_during_a_write_is_written_again(bench: Tab) -> None:
    assert bench.run(RENAMED_DURING_A_WRITE) == [False, ["new"]]
