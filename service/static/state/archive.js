/**
 * The takes of this browser: notes, edits, names and sound in IndexedDB, written as they grow, so that
 * a reload, a crash or a discarded tab loses at most a few seconds.
 *
 * Events: `trouble` with words for the page.
 */

import { FileRecording, LiveRecording } from "../audio/recording.js";
import { Take } from "../notes/take.js";

const NAME = "takes";
const GROWING_MS = 5_000; // between two writes of a take that grows
const SETTLED_MS = 700; // from an edit to its write
export const MAX_AUDIO_BYTES = 1_000_000_000; // of all takes together
const SAME = ["name", "created", "pedal", "programs", "beats", "key", "midi", "heard", "notes", "saved"];
const NOT_KEPT =
  "This browser keeps no takes, perhaps because the window is private. Download what you need.";

const finished = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

export class Archive extends EventTarget {
  #database = null; // promise
  #ids = new Map(); // take -> id
  #listed = new WeakSet(); // takes that are kept even without notes
  #timers = new Map(); // take -> timer of its next write
  #parts = new Map(); // id -> parts of the sound that are written
  #bytes = 0; // of sound
  #told = false;

  #open() {
    this.#database ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("takes");
        request.result.createObjectStore("audio");
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    return this.#database;
  }

  async #store(name, mode = "readonly") {
    const database = await this.#open();
    return database.transaction(name, mode).objectStore(name);
  }

  /** The takes of earlier visits, oldest first. */
  async load() {
    try {
      const records = await finished((await this.#store("takes")).getAll());
      records.sort((a, b) => a.created - b.created);
      const takes = [];
      for (const record of records) takes.push(await this.#restore(record));
      navigator.storage?.persist?.(); // the browser may then not clear them by itself
      return takes;
    } catch {
      this.#trouble(NOT_KEPT);
      return [];
    }
  }

  async #restore(record) {
    const take = new Take(record.name);
    for (const name of SAME) take[name] = record[name];
    for (const note of take.notes) note.offset ??= Math.max(note.onset, record.length); // it crashed
    take.history.done = record.done;
    take.history.undone = record.undone;
    take.head = take.length = record.length;
    take.live = false;
    take.kept = true;
    const range = IDBKeyRange.bound([record.id, 0], [record.id, Infinity]);
    const parts = await finished((await this.#store("audio")).getAll(range));
    for (const { size } of parts) this.#bytes += size;
    this.#parts.set(record.id, parts.length);
    if (parts.length) {
      take.recording = record.rate
        ? LiveRecording.of(record.rate, parts)
        : new FileRecording(new File(parts, record.file));
    }
    this.#ids.set(take, record.id);
    this.#listen(take);
    return take;
  }

  /** Keep a take from now on, if it has notes or is `listed`. */
  follow(take, listed = false) {
    if (listed) this.#listed.add(take);
    if (this.#ids.has(take)) return;
    this.#ids.set(take, crypto.randomUUID?.() ?? `${Date.now()} ${Math.random()}`);
    this.#listen(take);
    this.#soon(take);
  }

  #listen(take) {
    for (const type of ["change", "about", "finish"]) {
      take.addEventListener(type, () => this.#soon(take));
    }
  }

  #soon(take) {
    if (this.#timers.has(take) || !this.#ids.has(take)) return;
    const wait = take.live ? GROWING_MS : SETTLED_MS;
    this.#timers.set(take, setTimeout(() => this.#write(take), wait));
  }

  async #write(take) {
    const id = this.#ids.get(take);
    const { revision } = take;
    if (!id) return;
    try {
      if (take.notes.length || take.edited || this.#listed.has(take)) {
        await this.#writeSound(take, id);
        if (!this.#ids.has(take)) return;
        const record = { id, length: take.duration, ...take.history, rate: take.recording?.rate };
        record.file = take.recording?.fileName ?? "";
        for (const name of SAME) record[name] = take[name];
        await finished((await this.#store("takes", "readwrite")).put(record, id));
        take.keptNow(revision);
      }
    } catch (error) {
      const full = error?.name === "QuotaExceededError";
      this.#trouble(full ? "The browser's space for takes is full: delete some." : NOT_KEPT);
    }
    this.#timers.delete(take);
    if (take.live || take.revision !== revision) this.#soon(take);
  }

  async #writeSound(take, id) {
    const parts = take.recording?.parts(take.live) ?? [];
    for (let part = this.#parts.get(id) ?? 0; part < parts.length; part += 1) {
      const { size } = parts[part];
      if (this.#bytes + size > MAX_AUDIO_BYTES) {
        const megabytes = MAX_AUDIO_BYTES / 1e6;
        this.#trouble(`The sound of “${take.name}” is not kept: ${megabytes} MB are full. Delete takes.`);
        return;
      }
      try {
        await finished((await this.#store("audio", "readwrite")).put(parts[part], [id, part]));
      } catch (error) {
        if (error?.name === "QuotaExceededError") throw error;
        this.#trouble(`This window keeps the notes of “${take.name}”, not its sound.`); // Safari's private one
        return;
      }
      this.#bytes += size;
      this.#parts.set(id, part + 1);
    }
  }

  async delete(take) {
    const id = this.#ids.get(take);
    clearTimeout(this.#timers.get(take));
    this.#timers.delete(take);
    this.#ids.delete(take);
    if (!id) return;
    try {
      await finished((await this.#store("takes", "readwrite")).delete(id));
      const range = IDBKeyRange.bound([id, 0], [id, Infinity]);
      for (const { size } of take.recording?.parts(false) ?? []) this.#bytes -= size;
      await finished((await this.#store("audio", "readwrite")).delete(range));
    } catch {
      this.#trouble(NOT_KEPT);
    }
  }

  #trouble(words) {
    if (this.#told) return;
    this.#told = true;
    setTimeout(() => (this.#told = false), 60_000);
    this.dispatchEvent(new CustomEvent("trouble", { detail: words }));
  }
}
