/**
 * The live protocol from the page's side: one logical stream over one or more sessions.
 *
 * A lost connection is opened again with growing pauses. Audio that the server has not yet
 * turned into notes is kept (bounded) and sent again to the new session, whose clock starts at
 * zero; events leave here on the clock of the whole stream, in seconds since its first sample.
 *
 * Events: `ready`, `note_on`, `note_off`, `progress`, `lagging` (detail: the message, with
 * `time_s` on the stream's clock and a `key` unique to the note), `lost` (connection gone: end
 * all notes), `retry` {attempt, seconds}, `end` {done, words} once, last.
 */

import { askForKey, subprotocols } from "./access.js";

const BACKOFF_S = [0.5, 1, 2, 4, 8, 15, 15, 15, 15, 15];
const CONNECT_TIMEOUT_S = 15;
const SILENCE_TIMEOUT_S = 20; // after `stop`, without any message: the server is gone
const MAX_REPLAY_S = 5; // audio kept for a new session, where `ready` does not say less
const MAX_UNSENT_BYTES = 4 * 1024 * 1024; // a network this far behind is reconnected instead

export class TranscriptionSocket extends EventTarget {
  #url;
  #options;
  #rate;
  #socket = null;
  #ready = false;
  #stopping = false;
  #ended = false;
  #session = 0;
  #attempt = 0;
  #timer = 0; // of the pause before a retry, or of the wait for an answer
  #kept = []; // chunks {first, samples, pcm}, oldest first
  #keepSeconds = MAX_REPLAY_S;
  #captured = 0; // samples given to send()
  #origin = 0; // stream sample at which the present session began
  #settled = 0; // stream sample up to which notes have arrived
  #fault = null; // last `error` message of the present session
  #done = null;
  sessions = 0;
  lostSamples = 0;

  /** `options`: the fields of `start`; sample_rate is required. */
  constructor(url, options) {
    super();
    this.#url = url;
    this.#options = options;
    this.#rate = options.sample_rate;
  }

  open() {
    this.#session += 1;
    this.#ready = false;
    this.#fault = null;
    this.#done = null;
    this.#wait(CONNECT_TIMEOUT_S);
    const session = this.#session;
    const connect = (offered) => {
      if (session === this.#session && !this.#ended) this.#connect(offered);
    };
    subprotocols().then(connect, () => connect([])); // unreachable: the socket will say so
  }

  #connect(offered) {
    const socket = new WebSocket(this.#url, offered);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => socket.send(JSON.stringify({ type: "start", ...this.#options }));
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ code }) => {
      if (socket === this.#socket) this.#closed(code);
    };
  }

  /** Take a chunk of mono PCM (an ArrayBuffer of `samples` samples). */
  send(pcm, samples) {
    if (this.#ended || this.#stopping) return;
    const chunk = { first: this.#captured, samples, pcm };
    this.#captured += samples;
    this.#kept.push(chunk);
    this.#trim();
    if (!this.#ready) return;
    this.#socket.send(pcm);
    if (this.#socket.bufferedAmount > MAX_UNSENT_BYTES) this.#drop();
  }

  /** End the audio; the last notes and `end` follow. */
  stop() {
    if (this.#stopping || this.#ended) return;
    this.#stopping = true;
    if (this.#ready) this.#sendStop();
    else if (this.sessions === 0) this.#end("Stopped before the server was ready.");
    // Otherwise a reconnect is under way: what is kept is sent first, then the stop.
  }

  #sendStop() {
    this.#socket.send(JSON.stringify({ type: "stop" }));
    this.#wait(SILENCE_TIMEOUT_S);
  }

  #receive(message) {
    const { type } = message;
    if (this.#stopping) this.#wait(SILENCE_TIMEOUT_S);
    const offset = this.#origin / this.#rate;
    if (type === "ready") {
      clearTimeout(this.#timer);
      this.#begin(message);
      return;
    }
    if (type === "done") this.#done = message;
    if (type === "error") this.#fault = message;
    if ("time_s" in message) {
      message = { ...message, time_s: message.time_s + offset };
      this.#settled = Math.max(this.#settled, Math.round(message.time_s * this.#rate));
    }
    if ("note_id" in message) message.key = `${this.#session}:${message.note_id}`;
    if (["note_on", "note_off", "progress", "lagging"].includes(type)) this.#tell(type, message);
  }

  #begin(ready) {
    this.#ready = true;
    this.#attempt = 0;
    this.sessions += 1;
    this.#keepSeconds = Math.min(MAX_REPLAY_S, ready.limits.max_buffered_ms / 1000);
    this.#trim();
    this.#origin = this.#kept[0]?.first ?? this.#captured;
    this.lostSamples += Math.max(0, this.#origin - this.#settled);
    this.#tell("ready", ready);
    for (const { pcm } of this.#kept) this.#socket.send(pcm);
    if (this.#stopping) this.#sendStop();
  }

  /** Forget audio that has become notes, and the oldest of what is too much to keep. */
  #trim() {
    const bound = this.#captured - this.#keepSeconds * this.#rate;
    const oldest = Math.max(this.#settled, bound);
    let past = 0;
    while (past < this.#kept.length) {
      const { first, samples } = this.#kept[past];
      if (first + samples > oldest) break;
      past += 1;
    }
    this.#kept.splice(0, past);
  }

  /** No answer in time: treat the connection as gone. */
  #wait(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#drop(), seconds * 1000);
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null; // its late events no longer count
    socket?.close();
    this.#closed(1006);
  }

  #closed(code) {
    clearTimeout(this.#timer);
    this.#ready = false;
    this.#tell("lost", { code });
    if (this.#done && (this.#stopping || !this.#retryable())) {
      this.#end(this.#fault ? this.#fault.message : "");
    } else if (this.#fault?.code === "unauthorized") {
      const { message } = this.#fault;
      askForKey().then((given) => (given ? this.open() : this.#end(message)));
    } else if (!this.#retryable()) {
      this.#end(this.#fault.message);
    } else if (this.#stopping && this.#attempt > 2) {
      this.#end("The server went away before the last notes.");
    } else if (this.#attempt >= BACKOFF_S.length) {
      this.#end("The server cannot be reached. The notes so far are kept.");
    } else {
      // The random part keeps many pages from coming back in one and the same moment.
      const seconds = BACKOFF_S[this.#attempt] * (0.8 + 0.4 * Math.random());
      this.#attempt += 1;
      const words = this.#fault?.message ?? "";
      this.#tell("retry", { attempt: this.#attempt, seconds, words });
      this.#timer = setTimeout(() => this.open(), seconds * 1000);
    }
  }

  #retryable() {
    if (this.#fault) return this.#fault.retryable;
    return this.#done?.reason !== "stop";
  }

  #end(words) {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#tell("end", { done: this.#done, words });
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
