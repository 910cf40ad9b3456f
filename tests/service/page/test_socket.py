"""The page's end of the live protocol against a scripted server."""

from typing import Any

from tests.service.page.browser import Tab

# A WebSocket that a script speaks through: `open()` accepts, `say` is the server, `fail` cuts.
STAGE = """
  const { TranscriptionSocket } = await import('./service/socket.js');
  const Real = WebSocket;
  const sockets = [], heard = [];
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
    stream.addEventListener(type, ({ detail }) => heard.push([type, detail?.key ?? detail?.words ??
      (detail instanceof Set ? [...detail] : null)]));
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


def play(tab: Tab, script: str) -> dict[str, Any]:
    """Runs a script on that stage; what the sockets were sent, and what the page heard."""
    reported: dict[str, Any] = tab.run(
        f"async () => {{ {STAGE} try {{ {script} }} finally {{ window.WebSocket = Real; }}"
        " return { sent: sockets.map(({ sent }) => sent), heard, lost: stream.lostSamples }; }"
    )
    return reported


def test_resumes_from_the_checkpoint_with_what_was_heard_after_it(bench: Tab) -> None:
    reported = play(
        bench,
        """
        const first = await nextSocket(1);
        say(300);
        first.say(ready);
        say(300);
        first.say(noteOn(0, 0.1));
        first.say(progress(point(250, 8, [{ note_id: 0 }]), 0.4));
        first.say(noteOn(1, 0.45));
        first.fail();
        say(100);
        const second = await nextSocket(2);
        second.say({ ...ready, checkpoint: point(250, 8, [{ note_id: 0 }]) });
        second.say({ type: 'note_off', note_id: 1, pitch: 60, time_s: 0.6 });
        second.say(progress(point(300, 12), 0.6));  // the end of note 0 was never heard of
        stream.stop();
        second.say({ type: 'done', reason: 'stop' });
        second.fail();
        """,
    )
    first, second = reported["sent"]
    assert first == [{"type": "start", "sample_rate": 1000, "lookahead_ms": 70}, 600, 600]
    point = {"session_id": "ab", "from_sample": 250, "frames": 8, "notes": 8}
    resume = {**point, "sounding": [{"note_id": 0}], "known_events": 1}
    accepted = {"mode": "block", "block_frames": 4, "model": "m"}
    # From sample 250 on: the end of the first chunk, the second one, and what came meanwhile.
    assert second == [{**first[0], **accepted, "resume": resume}, 100, 600, 200, {"type": "stop"}]
    assert [entry for entry in reported["heard"] if entry[1] is not None] == [
        ["note_on", "1:0"],
        ["sounding", ["1:0"]],
        ["note_on", "1:1"],
        ["note_off", "1:1"],
        ["sounding", []],
        ["end", ""],
    ]
    assert reported["lost"] == 0


def test_starts_a_new_session_if_the_server_cannot_resume(bench: Tab) -> None:
    reported = play(
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
    _, second, third = reported["sent"]
    assert "resume" in second[0]
    assert third == [
        {"type": "start", "sample_rate": 1000, "lookahead_ms": 70},
        400,
        {"type": "stop"},
    ]
    assert [entry for entry in reported["heard"] if entry[0] in ("lost", "note_on")] == [
        ["lost", None],
        ["note_on", "1:0"],
        ["lost", None],
        ["note_on", "2:0"],
    ]
    assert reported["lost"] == 0  # what had not become notes was sent again


def test_tells_how_much_audio_a_long_break_has_cost(bench: Tab) -> None:
    reported = play(
        bench,
        """
        const first = await nextSocket(1);
        first.say(ready);
        say(1000);
        first.say(progress(point(500, 8), 0.8));
        first.fail();
        for (let second = 0; second < 310; second += 1) say(1000);  // 300 are kept
        const next = await nextSocket(2);
        next.say(ready);
        stream.stop();
        next.say({ type: 'done', reason: 'stop' });
        next.fail();
        """,
    )
    second = reported["sent"][1]
    assert "resume" not in second[0]
    assert sum(size for size in second if isinstance(size, int)) == 2 * 300_000
    assert reported["lost"] == 311_000 - 300_000 - 800


def test_a_token_that_cannot_be_had_now_is_asked_for_again(bench: Tab) -> None:
    reported = play(
        bench,
        """
        stream.stop();  // another takes its place, once there is a key
        const fetched = window.fetch;
        const good = { ok: true, status: 200, json: async () => ({ token: 'good' }) };
        const answers = [{ ok: false, status: 429 }, good];
        sessionStorage.setItem('rse-key', 'a key');
        window.fetch = async () => answers.shift();
        const other = new TranscriptionSocket('ws://nowhere', { sample_rate: 1000 });
        other.addEventListener('retry', () => heard.push(['retry', sockets.length]));
        await other.open();
        const socket = await nextSocket(1);
        heard.push(['offered', socket.offered]);
        window.fetch = fetched;
        sessionStorage.clear();
        other.stop();
        """,
    )
    assert reported["heard"][1:] == [["retry", 0], ["offered", ["rse.v1", "rse.token.good"]]]


def test_notes_that_come_too_late_are_shown_but_not_played(bench: Tab) -> None:
    reported = play(
        bench,
        """
        stream.stop();
        const { LiveTake } = await import('./service/live.js');
        const { Take } = await import('./notes/take.js');
        const source = new EventTarget();
        Object.assign(source, { rate: 1000, open() {}, start() {}, close() {} });
        const hear = (seconds) => source.dispatchEvent(new CustomEvent('chunk', {
          detail: { pcm: new ArrayBuffer(2000 * seconds), samples: 1000 * seconds, peak: 0.1 },
        }));
        const take = new Take('late');
        const live = new LiveTake(take, source);
        heard.length = 0;
        for (const type of ['note_on', 'note_off', 'silence', 'pedal']) {
          live.addEventListener(type, ({ detail }) =>
            heard.push([type, detail?.key ?? detail, Math.round(10 * live.lag) / 10]));
        }
        await live.start({ lookaheadMs: 70, instruments: [] });
        const socket = await nextSocket(1);
        socket.say({ ...ready, frame_rate_hz: 100, delay_ms: 100 });
        hear(1);
        socket.say(noteOn(0, 0.7));
        socket.say({ type: 'pedal', down: true, time_s: 0.7 });
        socket.say(progress(point(500, 8, [{ note_id: 0 }]), 0.8));
        hear(2);
        socket.say(noteOn(1, 0.9));
        socket.say(progress(point(500, 9, [{ note_id: 0 }, { note_id: 1 }]), 2.9));
        socket.say(noteOn(2, 2.8));
        heard.push(['shown', take.notes.length]);
        live.stop();
        socket.say({ type: 'done', reason: 'stop', midi_base64: '' });
        socket.fail();
        """,
    )
    told = reported["heard"]
    assert told[:7] == [
        ["pedal", False, 0],
        ["note_on", "1:0", 1],
        ["pedal", True, 1],
        ["silence", None, 2.2],
        ["pedal", True, 0.1],
        ["note_on", "1:2", 0.1],
        ["shown", 3],
    ]
