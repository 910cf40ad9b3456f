"""The page's modules one by one, run inside the browser: files they write, words they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.fakes import play
from tests.service.page.browser import Tab

pytestmark = pytest.mark.timeout(400)  # a browser and a server, perhaps on a busy machine

LENGTH_OF = """async (bytes) => {
  const { recordingSeconds } = await import('./audio/recording-length.js');
  return recordingSeconds(new Blob([new Uint8Array(bytes)])).catch(() => null);
}"""


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
@pytest.mark.parametrize("rate_hz", [11_025, 48_000])
def test_length_is_read_from_the_header(
    bench: Tab, tmp_path: Path, suffix: str, rate_hz: int
) -> None:
    path = tmp_path / f"sound.{suffix}"
    soundfile.write(path, play([(69, 0.1, 0.4)], 0.5, rate_hz), rate_hz)
    seconds = bench.run(LENGTH_OF, list(path.read_bytes()))
    assert seconds == pytest.approx(soundfile.info(path).duration, abs=1e-3)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"OggS" + bytes(60), b"fLaC" + bytes(60)], ids=lambda data: data[:4]
)
def test_length_of_a_damaged_file_is_unknown(bench: Tab, data: bytes) -> None:
    assert bench.run(LENGTH_OF, list(data)) is None


def test_look_ahead_says_what_the_card_measured(bench: Tab) -> None:
    def report(lookahead_ms: float, onset_f1: float) -> dict[str, Any]:
        return {"lookahead_ms": lookahead_ms, "mean": {"onset_f1": onset_f1}}

    card = {
        "recordings": {
            "piano": [report(100, 0.75), report(50, 0.65), report(200, 0.80)],
            "violin": [report(100, 0.60), report(200, 0.60)],
        }
    }

    def said(lookahead_ms: float, of: dict[str, Any] = card) -> str:
        script = "async ([c, ms]) => (await import('./service/accuracy.js')).accuracyText(c, ms)"
        text: str = bench.run(script, [of, lookahead_ms])
        return text

    assert said(100) == (
        "Right notes (onset F1): piano 0.75, violin 0.60; "
        "up to 5 points of 100 below the best look-ahead."
    )
    assert "piano 0.70, violin 0.60; up to 10 points" in said(75)  # halfway between the two
    assert "piano 0.80, violin 0.60; as good as the best" in said(370)
    trained = {"validation": {"ap_50ms": 0.8, "onset_ap_50ms": 0.3, "onset_ap_100ms": 0.6}}
    assert said(50, trained) == (
        "Right notes (onset AP): held-out instruments 0.30; "
        "up to 30 points of 100 below the best look-ahead."
    )
    assert said(100, {}) == ""


def test_midi_out_follows_the_notes_and_leaves_none_stuck(bench: Tab) -> None:
    sent = bench.run(
        """async () => {
          const sent = [];
          const port = {
            id: 'p', name: 'Synth', state: 'connected', send: (bytes, at) => sent.push([...bytes]),
          };
          const access = Object.assign(new EventTarget(), { outputs: new Map([['p', port]]) });
          navigator.requestMIDIAccess = async () => access;
          const { MidiOut } = await import('./notes/midi-out.js');
          const out = new MidiOut();
          out.noteOn('early', { pitch: 50, velocity: 1 }); // no port yet: nothing
          await out.open();
          out.choose(out.ports[0].id);
          sent.length = 0;
          out.noteOn(1, { pitch: 60, velocity: 90 });
          out.noteOn(2, { pitch: 60, velocity: 70 }); // struck again before the end of 1 is known
          out.noteOff(1);
          out.noteOff(2);
          out.noteOn(3, { pitch: 72, velocity: 10 }, 100); // ends before it is long enough
          out.noteOff(3);
          out.noteOn(4, { pitch: 64, velocity: 80 });
          out.silence();
          out.noteOff(4);
          return sent;
        }"""
    )
    end_64 = [[0x80, 64, 64], [0xB0, 123, 0]]
    assert sent == [
        [0x90, 60, 90],
        [0x90, 60, 70],
        [0x80, 60, 64],
        [0x90, 64, 80],
        *end_64,
        *end_64,
    ]
