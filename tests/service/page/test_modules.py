"""The page's modules one by one, run inside the browser: files they read, words they say."""

import io

import pretty_midi
import pytest

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
        if n not in (7, 8)  # which are filled in
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


def test_cancelling_one_recording_leaves_the_others(bench: Tab) -> None:
    states = bench.run(
        """async () => {
          const { Uploads } = await import('./service/uploads.js');
          const usual = window.fetch;
          window.fetch = async () => { throw new Error('no server'); };
          const uploads = new Uploads();
          const jobs = new Set();
          uploads.addEventListener('change', ({ detail }) => jobs.add(detail));
          uploads.add(['a', 'b', 'c'].map((name) => new File(['no sound'], `${name}.wav`)));
          uploads.cancel([...jobs][0]);
          while (uploads.busy) await new Promise((resolve) => setTimeout(resolve, 20));
          window.fetch = usual;
          return [...jobs].map(({ state }) => state);
        }"""
    )
    assert states == ["cancelled", "failed", "failed"]


def test_channels_are_mixed_unless_that_would_lose_sound(bench: Tab) -> None:
    """Of a tone at full scale, whose power is a half, in the two channels as given."""
    heard = bench.run(
        """async (cases) => {
          const heard = [];
          for (const { left, right, offset = 0 } of cases) {
            const rate = 8000;
            const context = new OfflineAudioContext(1, 2 * rate, rate);
            await context.audioWorklet.addModule('./audio/pcm-worklet.js');
            const buffer = context.createBuffer(2, 2 * rate, rate);
            for (const [at, level] of [left, right].entries()) {
              const tone = buffer.getChannelData(at);
              for (let i = 0; i < tone.length; i += 1) {
                tone[i] = level * Math.sin(0.35 * i) + at * offset;
              }
            }
            const source = new AudioBufferSourceNode(context, { buffer });
            const worklet = new AudioWorkletNode(context, 'pcm');
            const chunks = [];
            const last = new Promise((resolve) => {
              worklet.port.onmessage = ({ data }) => chunks.push(data) === 100 && resolve(data);
            });
            source.connect(worklet).connect(context.destination);
            source.start();
            await context.startRendering();
            const { peak, channels, why, alone } = await last;
            heard.push([peak, channels, why, alone]);
          }
          return heard;
        }""",
        [
            {"left": 0.5, "right": 0.5},
            {"left": 0, "right": 0.5},
            {"left": 0.5, "right": 0, "offset": 0.05},
            {"left": 0.5, "right": -0.4},
        ],
    )
    assert [peak for peak, *_ in heard] == pytest.approx([0.5] * 4, rel=0.01)
    expected = [(2, "", -1), (2, "silent", 1), (2, "silent", 0), (2, "cancelled", 0)]
    assert [tuple(rest) for _, *rest in heard] == expected


def test_a_connection_that_breaks_during_an_answer_is_told_in_words(bench: Tab) -> None:
    words = bench.run(
        """async () => {
          const { transcribe } = await import('./service/upload.js');
          const usual = window.fetch;
          const body = new ReadableStream({
            pull: (answer) => answer.error(new TypeError('Error in input stream')),
          });
          window.fetch = async () => new Response(body);
          const file = new File(['sound'], 'a.wav');
          try {
            await transcribe(file, {}, new AbortController().signal);
          } catch (error) {
            return error.message;
          } finally {
            window.fetch = usual;
          }
        }"""
    )
    assert words == "The connection was lost before the end of the recording."
