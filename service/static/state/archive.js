/**
 * Stores takes in the browser: notes, edits, names and audio in IndexedDB. They are written while they
 * grow, so that a reload, a crash or a discarded tab loses at most a few seconds.
 *
 * Events: `trouble` with a message for the user, and `kept` once a take has been written with its audio.
 */

import { FileRecording, LiveRecording } from "../audio/recording.js";
import { Take } from "../notes/take.js";

const NAME = "takes";
const GROWING_MS = 5_000; // interval between two writes of a growing take
const SETTLED_MS = 700; // delay from an edit to its write
const MAX_AUDIO_BYTES = 1_000_000_000; // total of all takes
// Properties of a take that its record has too.
const COPIED = [
  "name", "title", "created", "pedal", "programs", "beats", "midi", "transcribed", "notes", "saved", "soundSaved",
];
const NOT_KEPT =
  "This browser does not store takes, perhaps because the window is private. Download your takes.";

const unique = () => crypto.randomUUID?.() ?? `${Date.now()} ${Math.random()}`;

export class Archive extends EventTarget {
  #database = null; // promise of the database
  #ids = new Map(); // take -> id
  #stamps = new Map(); // take -> stamp of its record when this tab last read or wrote it
  #listed = new WeakSet(); // takes that are stored even if they have no notes
  #timers = new Map(); // take -> timer of its next write, or 0 during a write
  #parts = new Map(); // id -> stored parts of the audio
  #bytes = 0; // bytes of stored audio
  #incomplete = new Set(); // takes whose audio did not fit; written again when space is free
  #reported = "";

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) return; // a hidden tab may be closed or discarded at any time
      for (const [take, timer] of [...this.#timers]) {
        clearTimeout(timer);
        if (timer) this.#write(take);
      }
    });
  }

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

  /** Make a request to a store. Resolves with its result once the transaction is complete. */
  async #request(name, mode, make) {
    const transaction = (await this.#open()).transaction(name, mode);
    const request = make(transaction.objectStore(name));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error); // a full disk is reported only here
    });
  }

  /** The takes of earlier visits, oldest first. */
  async load() {
    try {
      const records = await this.#request("takes", "readonly", (store) => store.getAll());
      records.sort((a, b) => a.created - b.created);
      const takes = [];
      for (const record of records) takes.push(await this.#restore(record));
      navigator.storage?.persist?.(); // ask the browser not to delete them
      return takes;
    } catch {
      this.#trouble(NOT_KEPT);
      return [];
    }
  }

  async #restore(record) {
    const take = new Take(record.name);
    for (const name of COPIED) take[name] = record[name];
    // A note or a press of the pedal has no offset if the tab was closed during it.
    for (const event of [...take.notes, ...take.pedal]) event.offset ??= Math.max(event.onset, record.length);
    take.history.done = record.done;
    take.history.undone = record.undone;
    take.head = take.length = record.length;
    take.live = false;
    take.kept = true;
    const range = IDBKeyRange.bound([record.id, 0], [record.id, Infinity]);
    const parts = await this.#request("audio", "readonly", (store) => store.getAll(range));
    for (const { size } of parts) this.#bytes += size;
    this.#parts.set(record.id, parts.length);
    if (parts.length) {
      take.recording = record.rate
        ? LiveRecording.of(record.rate, parts)
        : new FileRecording(new File(parts, record.file));
    }
    this.#ids.set(take, record.id);
    this.#stamps.set(take, record.stamp);
    this.#listen(take);
    return take;
  }

  /** Store a take and its changes, if it has notes or is `listed`. */
  follow(take, listed = false) {
    if (listed) this.#listed.add(take);
    if (this.#ids.has(take)) return;
    this.#ids.set(take, unique());
    this.#listen(take);
    this.#scheduleWrite(take);
  }

  #listen(take) {
    for (const type of ["change", "about", "finish"]) {
      take.addEventListener(type, () => this.#scheduleWrite(take));
    }
  }

  #scheduleWrite(take) {
    if (this.#timers.has(take) || !this.#ids.has(take)) return;
    const wait = take.live ? GROWING_MS : SETTLED_MS;
    this.#timers.set(take, setTimeout(() => this.#write(take), wait));
  }

  async #write(take) {
    const { revision } = take;
    let { name } = take;
    if (!this.#ids.has(take)) return;
    this.#timers.set(take, 0);
    try {
      if (take.notes.length || take.edited || this.#listed.has(take)) {
        const id = await this.#idOf(take);
        const complete = await this.#writeSound(take, id);
        if (!this.#ids.has(take)) return;
        const record = { id, length: take.duration, ...take.history, rate: take.recording?.rate };
        record.stamp = unique();
        record.file = take.recording?.fileName ?? "";
        for (const property of COPIED) record[property] = take[property];
        name = record.name;
        await this.#request("takes", "readwrite", (store) => store.put(record, id));
        this.#stamps.set(take, record.stamp);
        if (complete) {
          this.#incomplete.delete(take);
          take.recordStored(revision, name);
          this.dispatchEvent(new Event("kept"));
        } else this.#incomplete.add(take);
      }
    } catch (error) {
      const full = error?.name === "QuotaExceededError";
      this.#incomplete.add(take);
      this.#trouble(full ? `No space is left: “${take.name}” is not kept. Delete takes.` : NOT_KEPT);
    }
    this.#timers.delete(take);
    if (take.live || take.revision !== revision || take.name !== name) this.#scheduleWrite(take);
  }

  /** Return the id of a take. If another tab has changed its record, create a new id, to store both. */
  async #idOf(take) {
    const id = this.#ids.get(take);
    const stored = await this.#request("takes", "readonly", (store) => store.get(id));
    if (!stored || stored.stamp === this.#stamps.get(take)) return id;
    this.#ids.set(take, unique());
    this.#trouble(`Another tab has changed “${take.name}”. Both versions are kept.`);
    take.rename(`${take.name} (2)`);
    return this.#ids.get(take);
  }

  async #writeSound(take, id) {
    const parts = take.recording?.parts() ?? [];
    for (let part = this.#parts.get(id) ?? 0; part < parts.length; part += 1) {
      if (!this.#ids.has(take)) return false; // deleted during this write
      const { size } = parts[part];
      if (this.#bytes + size > MAX_AUDIO_BYTES) {
        const megabytes = MAX_AUDIO_BYTES / 1e6;
        this.#trouble(`The sound of “${take.name}” is not kept: ${megabytes} MB are full. Delete takes.`);
        return false;
      }
      try {
        await this.#request("audio", "readwrite", (store) => store.put(parts[part], [id, part]));
      } catch {
        // The disk is full, or this is a private window of Safari.
        this.#trouble(`This browser keeps the notes of “${take.name}”, but not its sound.`);
        return false;
      }
      this.#bytes += size;
      this.#parts.set(id, part + 1);
    }
    return true;
  }

  async delete(take) {
    const id = this.#ids.get(take);
    clearTimeout(this.#timers.get(take));
    this.#timers.delete(take);
    this.#ids.delete(take);
    this.#incomplete.delete(take);
    if (!id) return;
    try {
      await this.#request("takes", "readwrite", (store) => store.delete(id));
      const range = IDBKeyRange.bound([id, 0], [id, Infinity]);
      await this.#request("audio", "readwrite", (store) => store.delete(range));
      const parts = take.recording?.parts() ?? [];
      for (const { size } of parts.slice(0, this.#parts.get(id) ?? 0)) this.#bytes -= size;
      for (const other of this.#incomplete) this.#scheduleWrite(other);
    } catch {
      this.#trouble(NOT_KEPT);
    }
  }

  #trouble(message) {
    if (this.#reported === message) return;
    this.#reported = message;
    setTimeout(() => (this.#reported = ""), 60_000);
    this.dispatchEvent(new CustomEvent("trouble", { detail: message }));
  }
}
