"""The page's modules one by one, run inside the browser: files they write, words they say."""

import io
import zipfile
from pathlib import Path

import pytest
import soundfile

from tests.fakes import play
from tests.service.page.browser import Tab

LENGTH_OF = """async (bytes) => {
  const { recordingSeconds } = await import('./audio/recording.js');
  return recordingSeconds(new Blob([new Uint8Array(bytes)]));
}"""


@pytest.mark.parametrize(
    ("suffix", "rate_hz"), [("wav", 11_025), ("flac", 48_000), ("mp3", 48_000)]
)
def test_length_is_read_from_the_header(
    bench: Tab, tmp_path: Path, suffix: str, rate_hz: int
) -> None:
    path = tmp_path / f"sound.{suffix}"
    soundfile.write(path, play([(69, 0.1, 0.4)], 0.5, rate_hz), rate_hz)
    seconds = bench.run(LENGTH_OF, list(path.read_bytes()))
    assert seconds == pytest.approx(soundfile.info(path).duration, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("song.flac", "song"), ("Live, 10.32", "Live, 10.32"), ("a.b.mp3", "a.b"), ("?", ".")],
)
def test_takes_are_saved_under_their_names(bench: Tab, name: str, stem: str) -> None:
    script = "async (name) => (await import('./notes/saving.js')).stemOf({ name })"
    assert bench.run(script, name) == stem


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
          uploads.cancel([...jobs][0]);  // whose header is still being read
          while (uploads.busy) await new Promise((resolve) => setTimeout(resolve, 20));
          window.fetch = usual;
          return [...jobs].map(({ state }) => state);
        }"""
    )
    assert states == ["cancelled", "failed", "failed"]


def test_notes_that_pass_are_counted_as_they_change(bench: Tab) -> None:
    counts, expected = bench.run(
        """async () => {
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Take } = await import('./notes/take.js');
          const filter = new NoteFilter();
          const counts = [];
          const expected = [];
          const take = new Take('long');
          const count = () => {
            counts.push(filter.count(take));
            expected.push(take.notes.filter((note) => filter.passes(note, take.head)).length);
          };
          const play = (from, notes) => {
            for (let key = from; key < from + notes; key += 1) {
              const instrument = key % 5 ? 'piano' : 'violin';
              const confidence = (key % 7) / 7;
              take.noteOn(key, { pitch: 60, velocity: 64, confidence, instrument }, key);
              count();
              if (key % 3) take.noteOff(key - 1, key + 0.1 * (key % 9));
              take.rename(key, 'viola');
              count();
            }
          };
          filter.set({ confidence: 0.5, seconds: 0.3 });
          play(0, 300);
          filter.set({ confidence: 0.2 });
          filter.mute('violin');
          play(300, 300);
          take.finish();
          count();
          return [counts, expected];
        }"""
    )
    assert counts == expected
    assert 0 < counts[-1] < 600


def test_length_of_a_damaged_file_is_unknown(bench: Tab) -> None:
    for data in (b"RIFF", b"OggS" + bytes(60), b"fLaC" + bytes(60)):
        assert bench.run(LENGTH_OF, list(data)) is None, data


def test_channels_are_mixed_unless_that_would_lose_sound(bench: Tab) -> None:
    """Of a tone at full scale, whose power is a half, in the two channels as given."""
    heard = bench.run(
        """async (cases) => {
          const heard = [];
          for (const { left, right, channel } of cases) {
            const rate = 8000;
            const context = new OfflineAudioContext(1, 2 * rate, rate);
            await context.audioWorklet.addModule('./audio/pcm-worklet.js');
            const buffer = context.createBuffer(2, 2 * rate, rate);
            for (const [at, level] of [left, right].entries()) {
              const tone = buffer.getChannelData(at);
              for (let i = 0; i < tone.length; i += 1) tone[i] = level * Math.sin(0.35 * i);
            }
            const source = new AudioBufferSourceNode(context, { buffer });
            const worklet = new AudioWorkletNode(context, 'pcm');
            const chunks = [];
            const last = new Promise((resolve) => {
              worklet.port.onmessage = ({ data }) => chunks.push(data) === 100 && resolve(data);
            });
            worklet.port.postMessage({ channel });
            source.connect(worklet).connect(context.destination);
            source.start();
            await new Promise((resolve) => setTimeout(resolve, 100));  // for the choice to arrive
            await context.startRendering();
            const { pcm, peak, channels, why, alone } = await last;
            const view = new DataView(pcm);
            let power = 0;
            for (let i = 0; i < pcm.byteLength; i += 2) {
              power += (view.getInt16(i, true) / 32768) ** 2;
            }
            heard.push([(2 * power) / pcm.byteLength, peak, channels, why, alone]);
          }
          return heard;
        }""",
        [
            {"left": 0.5, "right": 0.5, "channel": -1},
            {"left": 0, "right": 0.5, "channel": -1},
            {"left": 0.5, "right": -0.4, "channel": -1},
            {"left": 0.5, "right": 0.1, "channel": 1},
        ],
    )
    for (power, peak, channels, why, alone), (level, reason, which) in zip(
        heard, [(0.5, "", -1), (0.5, "silent", 1), (0.5, "cancelled", 0), (0.1, "", 1)], strict=True
    ):
        assert (channels, why, alone) == (2, reason, which)
        assert peak == pytest.approx(level, rel=0.01)
        assert power == pytest.approx(level**2 / 2, rel=0.03)


def test_a_live_recording_is_played_once_to_its_end(bench: Tab) -> None:
    """At 48 kHz, n / rate * rate is a little less than n for 113 chunks of 20 ms."""
    ends, rest = bench.run(
        """async () => {
          const { LiveRecording } = await import('./audio/recording.js');
          const context = new AudioContext();
          const recording = new LiveRecording(48_000);
          for (let i = 0; i < 113; i += 1) recording.add(new ArrayBuffer(1920), 960);
          const { end } = await recording.part(context, 0);
          const rest = await recording.part(context, end);
          await context.close();
          return [end, rest && rest.end];
        }"""
    )
    assert ends == 2.26
    assert rest is None


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


def test_an_archive_has_each_name_once(bench: Tab) -> None:
    archive = bench.run(
        """async () => {
          const { saveAll } = await import('./notes/saving.js');
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Take } = await import('./notes/take.js');
          const takes = ['song.wav', 'song.mp3', 'song (2).wav'].map((name) => new Take(name));
          for (const take of takes) take.finish();
          const { createObjectURL } = URL;
          const { click } = HTMLAnchorElement.prototype;
          let saved;
          URL.createObjectURL = (blob) => createObjectURL((saved = blob));
          HTMLAnchorElement.prototype.click = () => {};
          try {
            await saveAll(takes, new NoteFilter());
          } finally {
            URL.createObjectURL = createObjectURL;
            HTMLAnchorElement.prototype.click = click;
          }
          return [...new Uint8Array(await saved.arrayBuffer())];
        }"""
    )
    names = zipfile.ZipFile(io.BytesIO(bytes(archive))).namelist()
    stems = ["song", "song (2)", "song (2) (2)"]
    assert names == [f"{stem}.{ending}" for stem in stems for ending in ("mid", "json")]
