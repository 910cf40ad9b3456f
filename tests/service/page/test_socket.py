"""Tests of the page's websocket client with a scripted server."""

from typing import Any

import pytest

from tests.service.page.browser import Tab

# A fake WebSocket: `say` sends a message of the server, and `fail` disconnects.
SETUP = """
  const { TranscriptionSocket } = await import('./service/socket.js');
  const Real = WebSocket;
  const sockets = [], events = [];
  window.WebSocket = class {
    bufferedAmount = 0;
    sent = [];
    constructor(url, offered) {
      this.offered = offered;
      sockets.push(this);
    }
    send(data) { this.sent.push(typeof data === 'string' ? JSON.parse(data) : data.byteLength); }
    close() {}
    say(message) { this.onmessage({ data: JSON.stringify(message) }); }
    fail() { this.onclose({ code: 1006 }); }
  };
  const nextSocket = async (count) => {
    while (sockets.length < count) await new Promise((go) => setTimeout(go, 10));
    sockets[count - 1].onopen();
    return sockets[count - 1];
  };
  const stream = new TranscriptionSocket('ws://nowhere', { sample_rate: 1000, lookahead_ms: 70 });
  for (const type of ['ready', 'note_on', 'note_off', 'sounding', 'stall', 'lost', 'end']) {
    stream.addEventListener(type, ({ detail }) => events.push([type,
      detail?.key ?? detail?.message ?? (detail instanceof Set ? [...detail] : null)]));
  }
  const say = (samples) => stream.send(new ArrayBuffer(2 * samples), samples);
  const point = (from_sample, frames, sounding = []) =>
    ({ session_id: 'ab', from_sample, frames, notes: frames, sounding });
  const ready = { type: 'ready', mode: 'block', block_frames: 4, model: 'm', lookahead_ms: 69.66,
    checkpoint: point(0, 0), limits: {} };
  const noteOn = (note_id, time_s) => ({ type: 'note_on', note_id, pitch: 60, time_s });
  const progress = (checkpoint, time_s) => ({ type: 'progress', checkpoint, time_s, behind_ms: 0 });
  stream.open();
"""

# A live take instead of the stream. `play` captures a chunk of its source, and `finish` stops it.
LIVE_TAKE = """
  stream.cut();
  const { LiveTake } = await import('./service/live.js');
  const { Take } = await import('./notes/take.js');
  const methods = { open() {}, start() {}, close() {} };
  const source = Object.assign(new EventTarget(), { rate: 1000, ...methods });
  const live = new LiveTake(new Take('live'), source);
  live.addEventListener('notice', ({ detail }) => events.push(['notice', detail]));
  const play = (samples) => {
    const detail = { pcm: new ArrayBuffer(2 * samples), samples };
    source.dispatchEvent(new CustomEvent('chunk', { detail }));
  };
  const finish = async (server) => {
    live.stop();
    server.say({ type: 'done', reason: 'stop', midi_base64: '' });
    server.fail();
    await new Promise((resolve) => live.addEventListener('finish', resolve));
    events.push(['untranscribed', live.untranscribed]);
  };
  await live.start({ lookaheadMs: 70, instruments: [] });
"""


def run_script(tab: Tab, script: str) -> dict[str, Any]:
    """Run a script with fake sockets. Return the messages sent, the events and the lost samples."""
    result: dict[str, Any] = tab.run(
        f"async () => {{ {SETUP} try {{ {script} }} finally {{ window.WebSocket = Real; }}"
        " return { sent: sockets.map(({ sent }) => sent), events, lost: stream.lostSamples }; }"
    )
    return result


def test_resumes_from_the_last_checkpoint(bench: Tab) -> None:
    result = run_script(
        bench,
        """
        const first = await nextSocket(1);
        say(300);
        first.say(ready);
        say(300);
        first.say(noteOn(0, 0.1));
        first.say(progress(point(250, 8, [{ note_id: 0 }]), 0.4));
        first.say(noteOn(1, 0.45));
        first.say({ type: 'error', code: 'internal', message: 'no worker', retryable: true });
        first.say({ type: 'note_off', note_id: 1, pitch: 60, time_s: 0.5 }); // will be sent again
        first.fail();
        say(100);
        const second = await nextSocket(2);
        second.say({ ...ready, checkpoint: point(250, 8, [{ note_id: 0 }]) });
        second.say({ type: 'note_off', note_id: 1, pitch: 60, time_s: 0.6 });
        second.say(progress(point(300, 12), 0.6));  // the note_off of note 0 was not received
        stream.stop();
        second.say({ type: 'done', reason: 'stop' });
        second.fail();
        """,
    )
    first, second = result["sent"]
    assert first == [{"type": "start", "sample_rate": 1000, "lookahead_ms": 70}, 600, 600]
    point = {"session_id": "ab", "from_sample": 250, "frames": 8, "notes": 8}
    resume = {**point, "sounding": [{"note_id": 0}], "known_events": 1}
    accepted = {"mode": "block", "block_frames": 4, "model": "m"}
    # Audio is sent from sample 250: the rest of the first chunk, the second chunk, and the chunk
    # recorded during the disconnection.
    assert second == [{**first[0], **accepted, "resume": resume}, 100, 600, 200, {"type": "stop"}]
    assert [entry for entry in result["events"] if entry[1] is not None] == [
        ["note_on", "1:0"],
        ["sounding", ["1:0"]],
        ["note_on", "1:1"],
        ["note_off", "1:1"],
        ["sounding", []],
        ["end", ""],
    ]
    assert result["lost"] == 0


def test_starts_a_new_session_if_resuming_fails(bench: Tab) -> None:
    result = run_script(
        bench,
        """
        const first = await nextSocket(1);
        first.say(ready);
        say(1000);
        first.say(noteOn(0, 0.1));
        first.say(progress(point(500, 8), 0.8));
        first.fail();
        const second = await nextSocket(2);
        second.say({ type: 'error', code: 'bad_resume', message: 'no', retryable: false });
        second.fail();
        const third = await nextSocket(3);
        third.say(ready);
        third.say(noteOn(0, 0.1));
        stream.stop();
        third.say({ type: 'done', reason: 'stop' });
        third.fail();
        """,
    )
    _, second, third = result["sent"]
    assert "resume" in second[0]
    assert third == [
        {"type": "start", "sample_rate": 1000, "lookahead_ms": 70},
        400,
        {"type": "stop"},
    ]
    assert [entry for entry in result["events"] if entry[0] in ("lost", "note_on")] == [
        ["lost", None],
        ["note_on", "1:0"],
        ["lost", None],
        ["note_on", "2:0"],
    ]
    assert result["lost"] == 0  # the untranscribed audio was sent again


def test_warnings_are_shown_in_plain_words(bench: Tab) -> None:
    """The notice of an overload stays until the server has caught up."""
    result = run_script(
        bench,
        LIVE_TAKE
        + """
        const server = await nextSocket(1);
        server.say({ ...ready, delay_ms: 100 });
        events.length = 0;
        play(3000);
        server.say({ type: 'warning', code: 'overloaded', message: '' });
        server.say(progress(point(0, 40), 0.5));  // 2.4 s late
        events.push(['notice', 'late']);
        for (const time_s of [2.8, 2.9]) server.say(progress(point(0, 200), time_s));
        server.say({ type: 'warning', code: 'unlikely_audio', message: '' });
        server.say({ type: 'warning', code: 'a later one', message: 'its text' });
        server.say(progress(point(0, 220), 2.9));
        server.say({ type: 'warning', code: 'overloaded', message: '' });
        await finish(server);
        """,
    )
    shown = [text for kind, text in result["events"] if kind == "notice"]
    overload, late, removed, unlikely, later, again, stopped = shown
    assert overload.startswith("The server is overloaded.")
    assert (late, removed) == ("late", "")
    assert "Check the microphone" in unlikely
    assert later == "its text"
    assert (again, stopped) == (overload, "")  # a take that has ended is not late
    assert ["untranscribed", False] in result["events"]


def test_long_outage_does_not_end_the_recording(bench: Tab) -> None:
    result = run_script(
        bench,
        """
        const first = await nextSocket(1);
        first.say(ready);
        first.fail();
        const { now } = Performance.prototype;
        performance.now = () => now.call(performance) + 3_600_000;
        try {
          (await nextSocket(2)).fail();
          const third = await nextSocket(3);
          third.say(ready);
          events.push(['restored', null]);
        } finally {
          delete performance.now;
          stream.cut();
        }
        """,
    )
    assert [kind for kind, _ in result["events"]][-2:] == ["restored", "end"]
    assert "end" not in [kind for kind, _ in result["events"]][:-1]


def test_audio_that_was_not_transcribed_is_reported(bench: Tab) -> None:
    """A take without notes, but with such audio, is not discarded."""
    result = run_script(
        bench,
        LIVE_TAKE
        + """
        const first = await nextSocket(1);
        first.say({ ...ready, delay_ms: 100 });
        events.push(['untranscribed', live.untranscribed]);
        first.fail();
        play(10_000);
        events.push(['untranscribed', live.untranscribed]);
        for (let chunk = 0; chunk < 36; chunk += 1) play(10_000);  // 6 minutes, of which 5 are kept
        const second = await nextSocket(2);
        second.say({ ...ready, delay_ms: 100 });
        await finish(second);
        """,
    )
    untranscribed = [value for kind, value in result["events"] if kind == "untranscribed"]
    assert untranscribed == [False, True, True]
    (notice,) = [
        text for kind, text in result["events"] if kind == "notice" and "not transcribed" in text
    ]
    assert notice == "70 s were not transcribed. “Again”, in the list of takes, transcribes them."


BENDS_OF_TWO_PERFORMANCES = """async () => {
  const { Take } = await import('./notes/take.js');
  const frame = 43;
  return [0, 300].map((start) => {
    const take = new Take('');
    const time_s = start + frame * 128 / 11025;
    take.receive({ type: 'note_on', note_id: 0, pitch: 60, velocity: 80, confidence: 1, time_s });
    take.receive({ type: 'note_bend', note_id: 0, frame, time_s, cents: [10, 20, 30] });
    return take.notes[0].bends.at(-1)[0] - time_s;
  });
}"""


def test_bends_after_a_restart_have_the_same_duration(bench: Tab) -> None:
    """The times of a second performance count from the start of the take, but its frames do not."""
    assert bench.run(BENDS_OF_TWO_PERFORMANCES) == pytest.approx([2 * 128 / 11025] * 2)
