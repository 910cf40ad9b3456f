/**
 * One live take: sends a source of audio to the service and receives notes.
 *
 * Events:
 *   state      connecting, listening, reconnecting or finishing
 *   ready      the session is open
 *   sound      a chunk of the source
 *   progress   more audio has been transcribed
 *   note_on    {key, note}; omitted if it is too late to be played
 *   note_off   {key}
 *   pedal      true if it is down; omitted if it is too late
 *   silence    end all notes of MIDI out
 *   notice     a message for the user, "" to remove it
 *   finish     the last event; all open notes have ended
 *   abandoned  instead of `finish`, if the take is stopped before its source is open
 */

import { LiveRecording } from "../audio/recording.js";
import { fromBase64, midiFile } from "../notes/midi.js";
import { EVENTS, TranscriptionSocket } from "./socket.js";

const CLOCK_SMOOTHING = 0.05; // weight of the newest chunk in the running average of the clock
const LAG_SMOOTHING = 0.05; // weight of the latest lag in the running average that is displayed
const JUMP_S = 0.5; // minimum jump of the clock, after an interruption, that is followed immediately
const MIN_DURATION_S = 1; // minimum duration of a recording to keep
const TOO_LATE_S = 2; // delay from which notes are not sent to MIDI
const LEAD_S = 1; // maximum lead of the displayed clock over the transcribed audio
const NOTICE_AFTER_S = 2; // time to wait for the server before a notice is shown
const WAITING = "The server is not ready yet. What you play is kept, and will be transcribed.";
/**
 * Texts for the server's warnings by their codes. The server's own texts are for developers.
 * @type {Record<string, string>}
 */
const WARNINGS = {
  overloaded: "The server is overloaded. Notes are late, in larger blocks, until it catches up.",
  unlikely_audio: "The input does not look like music. Check the microphone, its cable and its driver.",
};
const CAUGHT_UP_S = 0.5; // maximum lag at which the server has caught up
const DELAYS_KEPT = 15; // number of newest notes in the median delay

export class LiveTake extends EventTarget {
  #take;
  #source;
  #socket = null;
  #captured = 0; // captured audio in seconds
  #origin = null; // smoothed time of the first sample on the page's clock, in seconds
  #transcribed = 0; // transcribed audio in seconds
  #delay = 0; // guaranteed delay in seconds
  #behind = 0; // lag behind this delay in the latest progress message, in seconds
  #lag = 0; // the same lag, smoothed, as the roll shows it
  #delays = []; // for the newest notes, seconds from the sound to the message
  #tooLate = false;
  #overloaded = false; // true while the notice of an overload is shown
  #recordingFull = false;
  #abandoned = false;
  state = "connecting";

  constructor(take, source) {
    super();
    this.#take = take;
    this.#source = source;
  }

  get reconnects() {
    return Math.max(0, (this.#socket?.sessions ?? 0) - 1);
  }

  get lostSeconds() {
    return this.#socket ? this.#socket.lostSamples / this.#take.recording.rate : 0;
  }

  /** True if audio was recorded that was not transcribed. */
  get untranscribed() {
    return this.lag + this.lostSeconds >= MIN_DURATION_S;
  }

  /** Median delay of the newest notes in seconds; null if there are none. */
  get measuredDelay() {
    const sorted = [...this.#delays].sort((a, b) => a - b);
    return sorted.length ? sorted[sorted.length >> 1] : null;
  }

  /** Seconds of audio that were captured but not transcribed. */
  get lag() {
    return Math.max(0, this.#captured - this.#transcribed);
  }

  /** The time of the take, in seconds, whose notes should arrive now: the head of the roll. */
  head() {
    this.#lag += (this.#behind - this.#lag) * LAG_SMOOTHING;
    const due = Math.min(this.#captured + 0.1, this.#clock()) - this.#delay - this.#lag;
    return Math.max(0, Math.min(due, this.#transcribed + LEAD_S));
  }

  #clock() {
    return this.#origin === null ? 0 : performance.now() / 1000 - this.#origin;
  }

  /** Open the source. Resolves once it is open or the take is abandoned. Throws Errors for the page. */
  async start({ lookaheadMs, mode, instruments, bends }) {
    this.#enter("connecting");
    const source = this.#source;
    await source.open();
    if (this.#abandoned) {
      await source.close();
      return;
    }
    this.#take.recording = new LiveRecording(source.rate);
    const url = new URL("ws/transcribe", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new TranscriptionSocket(url, {
      encoding: "pcm_s16le",
      sample_rate: source.rate,
      channels: 1,
      ...(mode && { mode }),
      lookahead_ms: lookaheadMs,
      ...(instruments.length && { instruments }),
      ...(bends && { bends }),
      beats: true,
      updates: true,
    });
    this.#socket = socket;
    this.#listen(socket);
    source.addEventListener("chunk", ({ detail }) => this.#chunk(detail));
    source.addEventListener("notice", ({ detail }) => this.#notify(detail));
    socket.open();
    source.start();
    setTimeout(() => this.state === "connecting" && this.#notify(WAITING), 1000 * NOTICE_AFTER_S);
  }

  stop() {
    if (!this.#socket) {
      // The browser may still be asking for permission.
      this.#abandoned = true;
      this.#emit("abandoned");
      return;
    }
    if (this.state === "finishing") return this.#socket.cut();
    this.#enter("finishing");
    this.#source.close();
    this.#socket.stop();
  }

  #chunk(chunk) {
    const { pcm, samples } = chunk;
    if (this.state === "finishing") return; // sent before the source was closed
    this.#captured += samples / this.#take.recording.rate;
    const origin = performance.now() / 1000 - this.#captured;
    if (this.#origin === null || Math.abs(origin - this.#origin) > JUMP_S) this.#origin = origin;
    this.#origin += (origin - this.#origin) * CLOCK_SMOOTHING;
    this.#emit("sound", chunk);
    this.#judgeLateness();
    if (!this.#take.recording.add(pcm, samples) && !this.#recordingFull) {
      this.#recordingFull = true;
      this.#notify("The recording has reached its maximum length; transcription continues.");
    }
    this.#socket.send(pcm, samples);
  }

  #listen(socket) {
    const take = this.#take;
    const on = (type, handle) => socket.addEventListener(type, ({ detail }) => handle(detail));
    on("ready", (ready) => {
      this.#delay = ready.delay_ms / 1000;
      take.stalled = false;
      take.programs = ready.instruments ?? {};
      this.#notify("");
      if (this.state !== "finishing") this.#enter("listening");
      this.#emit("ready", ready);
      this.#restorePedal();
    });
    for (const type of [...EVENTS, "beat"]) on(type, (message) => take.receive(message, message.key));
    on("note_on", (note) => {
      this.#delays.push(this.#clock() - note.time_s);
      if (this.#delays.length > DELAYS_KEPT) this.#delays.shift();
      if (this.#captured - note.time_s < TOO_LATE_S) this.#emit("note_on", { key: note.key, note });
    });
    on("pedal", ({ down }) => this.#tooLate || this.#emit("pedal", down));
    on("note_off", ({ key }) => this.#emit("note_off", { key }));
    on("progress", (progress) => {
      take.advance(progress.time_s);
      this.#transcribed = Math.max(this.#transcribed, progress.time_s);
      this.#behind = Math.max(0, this.lag - this.#delay);
      this.#judgeLateness();
      if (this.#overloaded && this.#behind <= CAUGHT_UP_S) {
        this.#overloaded = false;
        this.#notify("");
      }
      this.#emit("progress");
    });
    on("warning", ({ code, message }) => {
      this.#overloaded = code === "overloaded";
      this.#notify(WARNINGS[code] ?? message);
    });
    on("quiet", () => {
      this.#stall();
      this.#notify("The server is not responding. Your audio is buffered.");
    });
    on("reply", () => {
      take.stalled = false;
      this.#notify("");
    });
    on("sounding", (keys) => this.#closeAllBut(keys));
    on("stall", () => this.#stall());
    on("lost", () => {
      this.#closeAllBut(new Set());
      take.pedalMoved(false, take.head);
    });
    on("retry", ({ attempt, seconds, message }) => {
      const plays = this.state !== "finishing";
      if (plays) this.#enter("reconnecting");
      const why = (message || "The connection was lost").replace(/\.$/, "");
      const kept = plays ? " What you play is kept." : "";
      this.#notify(`${why}; trying again in ${Math.ceil(seconds)} s (${attempt}).${kept}`);
    });
    on("end", ({ done, message }) => this.#finish(done, message));
  }

  /** Silence MIDI out while notes arrive too late. */
  #judgeLateness() {
    const tooLate = this.lag > TOO_LATE_S;
    if (tooLate === this.#tooLate) return;
    this.#tooLate = tooLate;
    if (tooLate) this.#emit("silence");
    else this.#restorePedal();
  }

  #restorePedal() {
    if (!this.#tooLate) this.#emit("pedal", this.#take.pedalDown); // `silence` had released it
  }

  #stall() {
    this.#take.stalled = true;
    this.#emit("silence");
  }

  #closeAllBut(keys) {
    for (const key of [...this.#take.open.keys()]) {
      if (keys.has(key)) continue;
      this.#take.noteOff(key, this.#take.head);
      this.#emit("note_off", { key });
    }
  }

  async #finish(done, message) {
    await this.#source.close();
    const take = this.#take;
    take.closeAll();
    this.#emit("silence");
    // The server's file covers one session. The page writes the file of a take of several sessions.
    const whole = done && this.#socket.sessions === 1;
    const midi = whole ? fromBase64(done.midi_base64) : midiFile(take.notes, take);
    take.finish({ length: this.#captured, midi });
    if (done?.reason === "stop") this.#transcribed = this.#captured;
    const lost = Math.round(this.lostSeconds);
    if (message) this.#notify(message);
    else if (lost) this.#notify(`${lost} s were not transcribed. “Again”, in the list of takes, transcribes them.`);
    else if (this.#overloaded) this.#notify("");
    this.#emit("finish");
  }

  #enter(state) {
    this.state = state;
    this.#emit("state");
  }

  #notify(message) {
    this.#emit("notice", message);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
