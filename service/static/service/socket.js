/**
 * The live protocol (PROTOCOL.md) from the page's side: one performance over any number of
 * connections.
 *
 * After a lost connection the socket reconnects with growing pauses and resumes the performance: it
 * keeps the audio since the server's last checkpoint and sends it again, and no event comes twice.
 * If too much audio had to be dropped, a new performance begins, whose clock starts at zero. The
 * times of events here always count from the first sample of the whole stream.
 *
 * Events: `ready`, `note_on`, `note_update`, `note_bend`, `note_off`, `pedal`, `beat`, `progress` (detail:
 * the message, `time_s` on the stream's clock, a `key` unique to the note), `sounding` (keys: no other note
 * sounds), `quiet` (an answer is owed: the server or the line has stopped) and `heard` (it goes on), `stall`
 * (the connection is gone, notes may go on), `lost` (they will not: end all), `retry` {attempt, seconds,
 * words}, `end` {done, words} once, last.
 */

import { askForKey, authorization, subprotocols } from "./access.js";
import { Backlog } from "./backlog.js";
import { BUSY, problemText } from "./problem.js";
import { pauseUntilFree } from "./ready.js";

const BACKOFF_S = [0.5, 1, 2, 4, 8, 15]; // the last one again and again
const GIVE_UP_S = 600; // of attempts in a row
const STOPPED_ATTEMPTS = 3; // to fetch the last notes after `stop`
const CONNECT_TIMEOUT_S = 15;
const QUIET_S = 4; // of sound captured without any message: two a second are due
const SILENCE_TIMEOUT_S = 10; // after that the connection is given up
const MAX_KEPT_S = 300; // of audio, for a new connection: 29 MB at 48 kHz
const MAX_UNSENT_BYTES = 256 * 1024; // handed to the browser; the rest waits where it can be counted
const PUMP_MS = 50;
const NO_WEBSOCKET = "Live sound does not get through: a proxy must pass websockets on";
const NOT_RESUMABLE = ["bad_resume", "unknown_model"]; // the model may have been replaced
export const EVENTS = ["note_on", "note_update", "note_bend", "note_off", "pedal"];
const FORWARDED = [...EVENTS, "beat", "progress"];

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
  #attempt = 0; // since the transcription last went on
  #lostAt = 0; // page clock, in ms, of the first failure in a row
  #timer = 0; // of the wait for an answer
  #pumping = 0; // timer
  #heardAt = 0; // samples captured when the last message came
  #mute = false; // the present connection has been tried, and nothing came of it yet
  #quiet = false;
  #connection = 0; // counts the attempts
  #performance = 0; // counts those that did not resume another
  #origin = 0; // stream sample at which the present one began
  #settled = 0; // stream sample up to which notes have arrived
  #checkpoint = null; // of the present one; null if none can be resumed
  #known = 0; // note events after the checkpoint
  #accepted = {}; // options as the server took them
  #fault = null; // last `error` message of the present connection
  #withToken = false; // it was given one, so the key is right
  #done = null;
  sessions = 0;
  lostSamples = 0;

  /** `options`: the fields of `start`; sample_rate is required. */
  constructor(url, options) {
    super();
    this.#url = url;
    this.#options = options;
    this.#rate = options.sample_rate;
    this.#backlog = new Backlog(MAX_KEPT_S * this.#rate);
  }

  async open() {
    this.#ready = this.#stopSent = this.#mute = false;
    this.#fault = this.#done = null;
    this.#connection += 1;
    const connection = this.#connection;
    this.#wait(CONNECT_TIMEOUT_S);
    // Without its token the socket would be refused as if the key were wrong.
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

  /** Take a chunk of mono PCM (an ArrayBuffer of `samples` samples). */
  send(pcm, samples) {
    if (this.#ended || this.#stopping) return;
    const whole = this.#backlog.add(pcm, samples);
    if (!this.#ready) return;
    if (!whole) return this.#drop(); // the network takes less than the microphone gives
    this.#pump();
    if (!this.#quiet && this.#backlog.captured - this.#heardAt > QUIET_S * this.#rate) {
      this.#quiet = true;
      this.#emit("quiet");
    }
  }

  /** End the audio; the last notes and `end` follow. */
  stop() {
    if (this.#stopping || this.#ended) return;
    this.#stopping = true;
    if (this.#ready) this.#pump();
    else if (this.sessions === 0) this.#end("Stopped before the server was ready. “Again”, in the list of takes, transcribes the sound.");
    // Otherwise a reconnect is under way: what is kept is sent first, then the stop.
  }

  /** End now, without the notes that are still to come. */
  cut() {
    this.#end("Stopped before the last notes had come.");
  }

  #start() {
    // With too little audio left the performance cannot go on: a new one is begun.
    const from = this.#origin + (this.#checkpoint?.from_sample ?? 0);
    if (from < this.#backlog.first) this.#checkpoint = null;
    const start = { type: "start", ...this.#options };
    if (!this.#checkpoint) return start;
    const resume = { ...this.#checkpoint, known_events: this.#known };
    return { ...start, ...this.#accepted, resume };
  }

  /** Send what waits, then the stop, without filling the browser's own buffer. */
  #pump() {
    clearTimeout(this.#pumping);
    if (!this.#ready || this.#stopSent) return;
    while (this.#socket.bufferedAmount < MAX_UNSENT_BYTES) {
      const pcm = this.#backlog.take();
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
    this.#heardAt = this.#backlog.captured;
    this.#mute = false;
    if (this.#quiet) this.#emit("heard");
    this.#quiet = false;
    this.#wait(SILENCE_TIMEOUT_S);
    const { type } = message;
    if (type === "ready") return this.#begin(message);
    if (type === "draining" && !this.#stopSent) return this.#drop("The server is restarting");
    if (type === "done") this.#done = message;
    if (type === "error") {
      this.#fault = message;
      if (message.retryable) this.#drop(message.message); // what it still says is said again
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
    if (settled > this.#settled) this.#attempt = 0; // a `ready` alone may be that of one that fails again
    this.#settled = Math.max(this.#settled, settled);
    this.#checkpoint = checkpoint;
    this.#known = 0;
    this.#backlog.forgetBefore(this.#origin + checkpoint.from_sample);
    this.#emit("sounding", new Set(checkpoint.sounding.map((note) => this.#key(note.note_id))));
  }

  #key(noteId) {
    return `${this.#performance}:${noteId}`;
  }

  #wait(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#silent(), seconds * 1000);
  }

  /** No message in time: if one was owed, the connection is gone. */
  #silent() {
    const idle = this.#ready && !this.#stopSent && this.#backlog.captured === this.#heardAt;
    if (!idle) return this.#drop();
    this.#socket.send(JSON.stringify({ type: "keepalive" }));
    this.#wait(SILENCE_TIMEOUT_S);
  }

  #drop(words = "") {
    const socket = this.#socket;
    this.#socket = null; // its late events no longer count
    socket?.close();
    this.#closed(words);
  }

  #closed(words = this.#fault?.message ?? "") {
    clearTimeout(this.#timer);
    this.#connection += 1; // one that is still being opened comes too late
    this.#ready = this.#quiet = false;
    this.#lostAt = this.#attempt ? this.#lostAt : performance.now();
    this.#emit("stall");
    const unauthorized = this.#fault?.code === "unauthorized";
    const stray = unauthorized && this.#withToken; // too old, or known to another process
    const refused = this.#checkpoint !== null && NOT_RESUMABLE.includes(this.#fault?.code);
    if (refused) this.#checkpoint = null; // a new performance can still be begun
    if (this.#done?.reason === "stop") {
      this.#end("");
    } else if (unauthorized && !stray) {
      const { message } = this.#fault;
      askForKey().then((given) => (given ? this.open() : this.#end(message)));
    } else if (this.#fault && !this.#fault.retryable && !refused && !stray) {
      this.#end(this.#fault.message);
    } else if (this.#stopping && this.#attempt >= STOPPED_ATTEMPTS) {
      this.#end("The connection was lost before the last notes.");
    } else if (performance.now() - this.#lostAt > 1000 * GIVE_UP_S) {
      this.#end("The server cannot be reached. The notes so far are kept.");
    } else if (this.sessions === 0 && this.#mute) {
      this.#explain(words);
    } else {
      this.#retry(words);
    }
  }

  /** A browser hides the answer to a refused handshake, but not that to the same as a request. */
  async #explain(words) {
    const connection = this.#connection;
    const url = String(this.#url).replace(/^ws/, "http");
    const request = { method: "POST", headers: authorization() }; // a GET would show no origin
    const answer = await fetch(url, request).catch(() => null);
    const isRefusal = answer && ![404, 405].includes(answer.status); // which mean: websockets only
    const why = isRefusal && (await problemText(answer));
    if (connection !== this.#connection) return;
    if (!isRefusal) this.#retry(answer ? NO_WEBSOCKET : words || "The server cannot be reached");
    else if (BUSY.includes(answer.status)) this.#retry(why);
    else this.#end(why);
  }

  #retry(words) {
    const pause = BACKOFF_S[Math.min(this.#attempt, BACKOFF_S.length - 1)];
    // The random part keeps many pages from coming back in one and the same moment.
    const seconds = pause * (0.8 + 0.4 * Math.random());
    this.#attempt += 1;
    this.#emit("retry", { attempt: this.#attempt, seconds, words });
    const connection = this.#connection;
    pauseUntilFree(seconds).then(() => connection === this.#connection && this.open());
  }

  #end(words) {
    if (this.#ended) return;
    this.#ended = true;
    this.#connection += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#pumping);
    this.#emit("end", { done: this.#done, words });
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
