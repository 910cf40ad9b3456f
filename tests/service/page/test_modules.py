"""The page's modules one by one, run inside the browser: files they write, words they say."""

import io
import zipfile
from pathlib import Path
from typing import Any

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


def test_look_ahead_says_what_the_card_measured(bench: Tab) -> None:
    def report(lookahead_ms: float, onset_f1: float) -> dict[str, Any]:
        return {"lookahead_ms": lookahead_ms, "mean": {"onset_f1": onset_f1}}

    card = {
        "recordings": {
            "maps": [report(100, 0.75), report(50, 0.65), report(200, 0.80)],
            "violin": [report(100, 0.60), report(200, 0.60)],
        }
    }
    trained = {"validation": {"ap_50ms": 0.8, "onset_ap_50ms": 0.3, "onset_ap_100ms": 0.6}}
    script = "async ([c, ms]) => (await import('./service/accuracy.js')).accuracyText(c, ms)"
    for stated, lookahead_ms, words in [
        (card, 100, "piano 0.75, violin 0.60; another look-ahead gains up to 0.05."),
        (card, 75, "piano 0.70, violin 0.60; another look-ahead gains up to 0.1"),  # halfway
        (card, 370, "piano 0.80, violin 0.60; no look-ahead gains more."),
        (trained, 50, "synthetic pieces 0.30; another look-ahead gains up to 0.3."),
    ]:
        assert words in bench.run(script, [stated, lookahead_ms])
    assert bench.run(script, [{}, 100]) == ""


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
