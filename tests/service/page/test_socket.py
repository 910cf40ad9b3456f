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
    stream.addEventListener(type, ({ detail }) => heard.push([type,
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


def play(tab: Tab, script: str) -> dict[str, Any]:
    """Run a script with these sockets; return the messages sent and received."""
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
