/**
 * Recordings waiting to be transcribed, one at a time: each becomes a take.
 *
 * Events: `start` {file, take, seconds}, `progress` {take, seconds} and `finish` {take, words};
 * `seconds` is the recording's length where it is known, `words` say what went wrong.
 */

import { fromBase64, midiFile } from "./midi.js";
import { recordingSeconds } from "./recording-length.js";
import { Take } from "./take.js";
import { transcribe } from "./upload.js";

export class Uploads extends EventTarget {
  #waiting = [];
  #abort = null;
  busy = false;

  add(files) {
    this.#waiting.push(...files);
    if (!this.busy) this.#run();
  }

  /** Give up the present recording, keeping its notes, and those that wait. */
  cancel() {
    this.#waiting = [];
    this.#abort?.abort();
  }

  async #run() {
    this.busy = true;
    while (this.#waiting.length) {
      const file = this.#waiting.shift();
      const take = new Take(file.name);
      this.#abort = new AbortController();
      const seconds = await recordingSeconds(file).catch(() => null);
      this.#tell("start", { file, take, seconds });
      const words = await this.#transcribe(file, take, seconds);
      this.busy = this.#waiting.length > 0;
      this.#tell("finish", { take, words });
    }
  }

  async #transcribe(file, take, seconds) {
    const { signal } = this.#abort;
    const on = {
      note_on: (note) => take.noteOn(note.note_id, note, note.time_s),
      note_off: (note) => take.noteOff(note.note_id, note.time_s),
      progress: ({ time_s }) => {
        take.advance(time_s);
        this.#tell("progress", { take, seconds });
      },
    };
    try {
      const done = await transcribe(file, on, signal);
      take.finish({ length: done.totals.audio_s, midi: fromBase64(done.midi_base64) });
      return "";
    } catch (error) {
      take.closeAll();
      // What was found is kept, and can still be saved.
      take.finish({ midi: take.notes.length ? midiFile(take.notes) : null });
      return signal.aborted ? "cancelled" : error.message;
    }
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
