/**
 * The page's client of the live protocol (PROTOCOL.md): one performance over any number of connections.
 *
 * After a disconnection the client reconnects with increasing pauses and resumes the performance. It
 * buffers the audio since the server's last checkpoint and sends it again. No event is emitted twice.
 * If too much audio had to be dropped, a new performance starts, whose clock starts at zero. The times
 * of the events below always count from the first sample of the take.
 *
 * Events: `ready`, `note_on`, `note_update`, `note_bend`, `note_off`, `pedal`, `beat`, `progress` and `warning`,
 * whose detail is the message with `time_s` on the clock of the take and a unique `key` of the note; `sounding`
 * (keys of all sounding notes); `quiet` (a reply is late) and `reply` (it arrived); `stall` (disconnected,
 * notes may continue); `lost` (notes do not continue: end all); `retry` {attempt, seconds, message}; and
 * finally `end` {done, message}, once.
 */

import { askForKey, authorization, subprotocols } from "./access.js";
import { Backlog } from "./backlog.js";
import { BUSY, problemText } from "./problem.js";

const BACKOFF_S = [0.5, 1, 2, 4]; // pauses between attempts; the last pause is repeated
const STOPPED_ATTEMPTS = 3; // maximum number of attempts to receive the last notes after `stop`
const CONNECT_TIMEOUT_S = 15;
const QUIET_S = 4; // audio without a message after which a reply is late; usually two arrive per second
const SILENCE_TIMEOUT_S = 10; // time without a message after which the connection is closed
const MAX_KEPT_S = 300; // buffered audio for a new connection: 29 MB at 48 kHz
const MAX_UNSENT_BYTES = 256 * 1024; // limit of the browser's send buffer; other audio stays in the backlog
const PUMP_MS = 50;
const NO_WEBSOCKET = "Live audio is blocked: the proxy must support websockets";
const NOT_RESUMABLE = ["bad_resume", "unknown_model"]; // the model may have been replaced
export const EVENTS = ["note_on", "note_update", "note_bend", "note_off", "pedal"];
const FORWARDED = [...EVENTS, "beat", "progress", "warning"];

export class TranscriptionSocket extends EventTarget {
  #url;
  #options;
  #rate;
  #backlog;
  #socket = null;
  #ready = false;
  #stopping = false;
  #stopSent = false;
  #ended = false;
  #attempt = 0; // number of attempts since the last progress
  #timer = 0; // timer of an expected reply
  #pumping = 0; // timer of the next chunk to send
  #lastMessageAt = 0; // number of captured samples when the last message arrived
  #mute = false; // true until the current connection has received a message
  #quiet = false;
  #connection = 0; // number of the current attempt
  #performance = 0; // number of the current performance
  #origin = 0; // sample of the take at which the current performance started
  #settled = 0; // sample of the take up to which notes have arrived
  #checkpoint = null; // checkpoint of the current performance; null if it cannot be resumed
  #known = 0; // number of note events since the checkpoint
  #accepted = {}; // effective options of the server
  #error = null; // last `error` message of the current connection
  #withToken = false; // true if the server issued a token, so the key is valid
  #done = null;
  sessions = 0;
  lostSamples = 0;

  /** `options`: fields of `start`, of which sample_rate is required. */
  constructor(url, options) {
    super();
    this.#url = url;
    this.#options = options;
    this.#rate = options.sample_rate;
    this.#backlog = new Backlog(MAX_KEPT_S * this.#rate);
  }

  async open() {
    this.#ready = this.#stopSent = this.#mute = false;
    this.#error = this.#done = null;
    this.#connection += 1;
    const connection = this.#connection;
    this.#wait(CONNECT_TIMEOUT_S);
    // Without a token the server would reject the socket as if the key were wrong.
    const offered = await subprotocols().catch(() => null);
    if (connection !== this.#connection) return;
    if (offered === null) return this.#drop();
    this.#withToken = offered.length > 1;
    this.#mute = true;
    const socket = new WebSocket(this.#url, offered);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => socket.send(JSON.stringify(this.#start()));
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = () => {
      if (socket === this.#socket) this.#closed();
    };
  }

  /** Send a chunk of mono PCM (an ArrayBuffer of `samples` samples). */
  send(pcm, samples) {
    if (this.#ended || this.#stopping) return;
    const complete = this.#backlog.add(pcm, samples);
    if (!this.#ready) return;
    if (!complete) return this.#drop(); // the network is slower than the microphone
    this.#pump();
    if (!this.#quiet && this.#backlog.captured - this.#lastMessageAt > QUIET_S * this.#rate) {
      this.#quiet = true;
      this.#emit("quiet");
    }
  }

  /** End the audio. The last notes and `end` follow. */
  stop() {
    if (this.#stopping || this.#ended) return;
    this.#stopping = true;
    if (this.#ready) this.#pump();
    else if (this.sessions === 0) this.#end("Stopped before the server was ready. “Again”, in the list of takes, transcribes the sound.");
    // Otherwise a reconnect is in progress, which sends the buffered audio and then `stop`.
  }

  /** End immediately, without waiting for more notes. */
  cut() {
    this.#end("Stopped before the last notes arrived.");
  }

  #start() {
    // If the required audio is no longer buffered, a new performance starts.
    const from = this.#origin + (this.#checkpoint?.from_sample ?? 0);
    if (from < this.#backlog.first) this.#checkpoint = null;
    const start = { type: "start", ...this.#options };
    if (!this.#checkpoint) return start;
    const resume = { ...this.#checkpoint, known_events: this.#known };
    return { ...start, ...this.#accepted, resume };
  }

  /** Send buffered audio, then `stop`, without exceeding MAX_UNSENT_BYTES in the browser's buffer. */
  #pump() {
    clearTimeout(this.#pumping);
    if (!this.#ready || this.#stopSent) return;
    while (this.#socket.bufferedAmount < MAX_UNSENT_BYTES) {
      const pcm = this.#backlog.next();
      if (pcm) {
        this.#socket.send(pcm);
        continue;
      }
      if (this.#stopping) {
        this.#stopSent = true;
        this.#socket.send(JSON.stringify({ type: "stop" }));
      }
      return;
    }
    this.#pumping = setTimeout(() => this.#pump(), PUMP_MS);
  }

  #receive(message) {
    this.#lastMessageAt = this.#backlog.captured;
    this.#mute = false;
    if (this.#quiet) this.#emit("reply");
    this.#quiet = false;
    this.#wait(SILENCE_TIMEOUT_S);
    const { type } = message;
    if (type === "ready") return this.#begin(message);
    if (type === "draining" && !this.#stopSent) return this.#drop("The server is restarting");
    if (type === "done") this.#done = message;
    if (type === "error") {
      this.#error = message;
      if (message.retryable) this.#drop(message.message); // later messages will be sent again
      return;
    }
    if ("time_s" in message) {
      message = { ...message, time_s: message.time_s + this.#origin / this.#rate };
    }
    if (EVENTS.includes(type)) this.#known += 1;
    if ("note_id" in message) message.key = this.#key(message.note_id);
    if (type === "progress") this.#advance(message);
    if (FORWARDED.includes(type)) this.#emit(type, message);
  }

  #begin(ready) {
    this.#ready = true;
    this.sessions += 1;
    if (this.#checkpoint) {
      this.#backlog.rewind(this.#origin + this.#checkpoint.from_sample);
    } else {
      this.#emit("lost");
      this.#performance += 1;
      this.#origin = Math.max(this.#settled, this.#backlog.first);
      this.lostSamples += this.#origin - this.#settled;
      this.#checkpoint = ready.checkpoint;
      this.#known = 0;
      const { mode, block_frames, model } = ready;
      this.#accepted = { mode, block_frames, model };
      this.#backlog.rewind(this.#origin);
    }
    this.#emit("ready", ready);
    this.#pump();
  }

  #advance({ time_s, checkpoint }) {
    const settled = Math.round(time_s * this.#rate);
    if (settled > this.#settled) this.#attempt = 0; // `ready` is not enough, since the server may fail again
    this.#settled = Math.max(this.#settled, settled);
    this.#checkpoint = checkpoint;
    this.#known = 0;
    this.#backlog.releaseBefore(this.#origin + checkpoint.from_sample);
    this.#emit("sounding", new Set(checkpoint.sounding.map((note) => this.#key(note.note_id))));
  }

  #key(noteId) {
    return `${this.#performance}:${noteId}`;
  }

  #wait(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#silent(), seconds * 1000);
  }

  /** Handle a missing message. If one was expected, the connection is unresponsive. */
  #silent() {
    const idle = this.#ready && !this.#stopSent && this.#backlog.captured === this.#lastMessageAt;
    if (!idle) return this.#drop();
    this.#socket.send(JSON.stringify({ type: "keepalive" }));
    this.#wait(SILENCE_TIMEOUT_S);
  }

  #drop(message = "") {
    const socket = this.#socket;
    this.#socket = null; // its late events are ignored
    socket?.close();
    this.#closed(message);
  }

  #closed(message = this.#error?.message ?? "") {
    clearTimeout(this.#timer);
    this.#connection += 1; // so that a connection that is still opening is ignored
    this.#ready = this.#quiet = false;
    this.#emit("stall");
    const unauthorized = this.#error?.code === "unauthorized";
    const stray = unauthorized && this.#withToken; // the token expired, or another process issued it
    const rejected = this.#checkpoint !== null && NOT_RESUMABLE.includes(this.#error?.code);
    if (rejected) this.#checkpoint = null; // a new performance can still start
    if (this.#done?.reason === "stop") {
      this.#end("");
    } else if (unauthorized && !stray) {
      const { message } = this.#error;
      askForKey().then((entered) => (entered ? this.open() : this.#end(message)));
    } else if (this.#error && !this.#error.retryable && !rejected && !stray) {
      this.#end(this.#error.message);
    } else if (this.#stopping && this.#attempt >= STOPPED_ATTEMPTS) {
      this.#end("The connection was lost before the last notes.");
    } else if (this.sessions === 0 && this.#mute) {
      this.#explain(message);
    } else {
      this.#retry(message);
    }
  }

  /** Retry or end after a rejected handshake. An HTTP request gets the reason, which browsers hide. */
  async #explain(message) {
    const connection = this.#connection;
    const url = String(this.#url).replace(/^ws/, "http");
    const request = { method: "POST", headers: authorization() }; // a GET would not send the origin
    const response = await fetch(url, request).catch(() => null);
    const isRejection = response && ![404, 405].includes(response.status); // these: only websockets here
    const why = isRejection && (await problemText(response));
    if (connection !== this.#connection) return;
    if (!isRejection) this.#retry(response ? NO_WEBSOCKET : message || "The server cannot be reached");
    else if (BUSY.includes(response.status)) this.#retry(why);
    else this.#end(why);
  }

  #retry(message) {
    const pause = BACKOFF_S[Math.min(this.#attempt, BACKOFF_S.length - 1)];
    // The random part prevents many pages from reconnecting at the same time.
    const seconds = pause * (0.8 + 0.4 * Math.random());
    this.#attempt += 1;
    this.#emit("retry", { attempt: this.#attempt, seconds, message });
    const connection = this.#connection;
    setTimeout(() => connection === this.#connection && this.open(), 1000 * seconds);
  }

  #end(message) {
    if (this.#ended) return;
    this.#ended = true;
    this.#connection += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#pumping);
    this.#emit("end", { done: this.#done, message });
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
