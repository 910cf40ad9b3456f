/**
 * Queue of recordings. They are transcribed one after the other. Each job results in a take.
 *
 * A job is {file, take, fraction, state, message}. `fraction`: the transcribed part of the recording, null
 * if its duration is unknown. `state`: waiting, running, done, failed or cancelled. `message`: a message
 * for the user.
 * Events: `change` (detail: the job).
 */

import { FileRecording } from "../audio/recording.js";
import { fromBase64, midiFile } from "../notes/midi.js";
import { stem } from "../notes/opening.js";
import { Take } from "../notes/take.js";
import { BusyError, transcribe } from "./upload.js";

const MAX_ATTEMPTS = 20; // maximum number of requests for a recording while the server is busy
const SINGLE_CHANNELS = ["left", "right"];

/** Wait for `seconds`. Rejects if `signal` aborts. */
const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    signal.throwIfAborted();
    signal.addEventListener("abort", () => reject(signal.reason));
    setTimeout(resolve, 1000 * seconds);
  });

export class Uploads extends EventTarget {
  #waiting = [];
  #running = null;
  #abort = null;

  get busy() {
    return this.#running !== null;
  }

  /** `options`: see `transcribe`. */
  add(files, options = {}) {
    for (const file of files) {
      const take = new Take(stem(file.name));
      take.recording = new FileRecording(file);
      const job = { file, options, take, fraction: 0, state: "waiting", message: "" };
      this.#waiting.push(job);
      this.#emit(job);
    }
    if (!this.busy) this.#run();
  }

  /** Cancel a recording. The notes that were received remain. */
  cancel(job) {
    if (job === this.#running) {
      this.#abort.abort();
      return;
    }
    if (job.state !== "waiting") return;
    this.#waiting.splice(this.#waiting.indexOf(job), 1);
    job.state = "cancelled";
    this.#emit(job);
  }

  async #run() {
    while (this.#waiting.length) {
      const job = this.#waiting.shift();
      this.#running = job;
      this.#abort = new AbortController();
      job.state = "running";
      this.#emit(job);
      await this.#transcribe(job);
      if (!this.#waiting.length) this.#running = null;
      this.#emit(job);
    }
  }

  async #transcribe(job) {
    const { signal } = this.#abort;
    const { take } = job;
    const receive = (message) => {
      if (message.type === "started") {
        take.clear(); // the first attempt may have ended in the middle
        take.programs = message.instruments ?? {};
        take.title = message.title ?? "";
      }
      if (message.type !== "progress") return take.receive(message);
      job.message = "";
      job.fraction = message.fraction;
      take.advance(message.time_s);
      this.#emit(job);
    };
    try {
      const done = await this.#whenFree(job, () => transcribe(job.file, receive, signal, job.options));
      take.finish({ length: done.totals.audio_s, midi: fromBase64(done.midi_base64) });
      job.state = "done";
      const { mix } = done.totals;
      if (SINGLE_CHANNELS.includes(mix)) {
        job.message = `its channels cancel each other; only the ${mix} channel was used`;
      }
    } catch (error) {
      take.closeAll();
      // The notes that were received remain and can be saved.
      take.finish({ midi: take.notes.length ? midiFile(take.notes, take) : null });
      job.state = signal.aborted ? "cancelled" : "failed";
      job.message = signal.aborted ? "cancelled" : error.message;
    }
  }

  /** Transcribe, and retry after the time that the server states if it is busy. */
  async #whenFree(job, attempt) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof BusyError) || tries === MAX_ATTEMPTS) throw error;
        job.message = `${error.message}; trying again in ${error.seconds} s`;
        this.#emit(job);
        await pause(error.seconds, this.#abort.signal);
      }
    }
  }

  #emit(job) {
    this.dispatchEvent(new CustomEvent("change", { detail: job }));
  }
}
