/**
 * One live take: microphone -> socket -> notes.
 *
 * Events: `state` (connecting, listening, reconnecting, finishing), `ready`, `progress`,
 * `level`, `trouble` (words for the page) and `finish` once, last. Whatever ends the take, its
 * open notes are closed.
 */

import { Microphone } from "./microphone.js";
import { fromBase64, midiFile } from "./midi.js";
import { TranscriptionSocket } from "./socket.js";

const CLOCK_SMOOTHING = 0.05; // share of each chunk's jitter that the drawn clock follows

export class LiveTake extends EventTarget {
  #take;
  #microphone = new Microphone();
  #socket = null;
  #captured = 0; // seconds
  #origin = null; // page clock, in seconds, of the first sample; smoothed
  #delay = 0;
  state = "connecting";

  constructor(take) {
    super();
    this.#take = take;
  }

  get sessions() {
    return this.#socket?.sessions ?? 0;
  }

  get lostSeconds() {
    return this.#socket ? this.#socket.lostSamples / this.#microphone.rate : 0;
  }

  /** The moment, in seconds of the take, whose notes are just due: the head of the roll. */
  head() {
    if (this.#origin === null) return 0;
    const heard = Math.min(this.#captured + 0.1, performance.now() / 1000 - this.#origin);
    return Math.max(0, heard - this.#delay);
  }

  async start({ deviceId, lookaheadMs }) {
    this.#enter("connecting");
    await this.#microphone.open(deviceId);
    const url = new URL("ws/transcribe", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new TranscriptionSocket(url, {
      encoding: "pcm_s16le",
      sample_rate: this.#microphone.rate,
      channels: 1,
      lookahead_ms: lookaheadMs,
    });
    this.#socket = socket;
    this.#listen(socket);
    this.#microphone.addEventListener("chunk", ({ detail }) => this.#chunk(detail));
    this.#microphone.addEventListener("ended", () => {
      this.#say("The microphone went away. The notes so far are kept.");
      this.stop();
    });
    socket.open();
    this.#microphone.start();
  }

  stop() {
    if (!this.#socket || this.state === "finishing") return;
    this.#enter("finishing");
    this.#microphone.close();
    this.#socket.stop();
  }

  #chunk({ pcm, samples, peak }) {
    this.#captured += samples / this.#microphone.rate;
    const origin = performance.now() / 1000 - this.#captured;
    this.#origin ??= origin;
    this.#origin += (origin - this.#origin) * CLOCK_SMOOTHING;
    this.dispatchEvent(new CustomEvent("level", { detail: peak }));
    this.#socket.send(pcm, samples);
  }

  #listen(socket) {
    const take = this.#take;
    const on = (type, handle) => socket.addEventListener(type, ({ detail }) => handle(detail));
    on("ready", (ready) => {
      this.#delay = ready.delay_ms / 1000;
      if (this.state !== "finishing") this.#enter("listening");
      this.dispatchEvent(new CustomEvent("ready", { detail: ready }));
    });
    on("note_on", (note) => take.noteOn(note.key, note, note.time_s));
    on("note_off", (note) => take.noteOff(note.key, note.time_s));
    on("progress", (progress) => {
      take.advance(progress.time_s);
      this.dispatchEvent(new CustomEvent("progress", { detail: progress }));
    });
    on("lagging", (lagging) =>
      this.dispatchEvent(new CustomEvent("progress", { detail: lagging })),
    );
    on("lost", () => take.closeAll());
    on("retry", ({ attempt, seconds, words }) => {
      if (this.state !== "finishing") this.#enter("reconnecting");
      const why = words || "The connection was lost";
      this.#say(`${why.replace(/\.$/, "")}; trying again in ${Math.ceil(seconds)} s (${attempt}).`);
    });
    on("end", ({ done, words }) => this.#finish(done, words));
  }

  async #finish(done, words) {
    await this.#microphone.close();
    const take = this.#take;
    take.closeAll();
    // The server's file covers one session; a take pieced together from several is written here.
    const whole = done && this.sessions === 1;
    const midi = whole ? fromBase64(done.midi_base64) : midiFile(take.notes);
    take.finish({ length: this.#captured, midi });
    if (words) this.#say(words);
    this.dispatchEvent(new Event("finish"));
  }

  #enter(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #say(words) {
    this.dispatchEvent(new CustomEvent("trouble", { detail: words }));
  }
}
