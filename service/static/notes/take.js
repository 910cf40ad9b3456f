import { applied, History, restore } from "../edit/commands.js";

export const FRAME_S = 128 / 11025; // duration of a frame of the shipped weights

/**
 * A take: the notes of one live performance or one recording, in order of onset.
 *
 * Times are in seconds from the take's first sample. The `offset` of a note that still sounds is null.
 * Events: `change` (of its notes), `about` (change of its name or of `saved`) and `finish`.
 */
export class Take extends EventTarget {
  constructor(name) {
    super();
    this.name = name;
    this.title = ""; // title of the score, if the recording has a title tag
    this.notes = [];
    this.received = new Map(); // note key -> note
    this.open = new Map(); // of these, the sounding notes
    this.head = 0; // transcribed seconds
    this.length = 0; // duration in seconds; 0 while it is unknown
    this.live = true; // true if more notes may follow
    this.stalled = false; // true while a live take has no connection, so that no note sounds
    this.recording = null; // the audio (recording.js), if the page has it
    this.pedal = []; // presses of the sustain pedal: {onset, offset}, offset null while it is down
    this.programs = {}; // instrument -> General MIDI program, if the server distinguishes instruments
    this.beats = []; // {time_s, place, beats_per_bar, subdivision}: detected beats, or those of the score
    this.chords = null; // {revision, names: [{time_s, name}]} of the score
    this.midi = null; // Uint8Array of a Standard MIDI File, once finished
    this.saved = false; // true if all its notes were saved as a file
    this.soundSaved = false; // true if its sound was saved as a file
    this.history = new History(); // edits
    this.transcribed = null; // {notes, beats} before the first edit
    this.stored = false; // true if some revision is stored in this browser
    this.kept = false; // true if the current revision is stored in this browser, with its name
    this.revision = 0; // number of changes
    this.created = Date.now();
  }

  get duration() {
    return Math.max(this.length, this.head, this.edited ? (this.notes.at(-1)?.offset ?? 0) : 0);
  }

  get edited() {
    return this.history.done.length > 0;
  }

  /** Semitones by which the take was transposed. */
  get transposed() {
    return this.history.done.reduce((sum, { semitones = 0 }) => sum + semitones, 0);
  }

  /** Beats that a score must use: those of an opened file, which has no `midi`, or of an edited take. */
  get keptBeats() {
    return (this.edited || !this.midi) && this.beats.length > 1 ? this.beats : undefined;
  }

  /** Run a command of `edit/commands.js`. `again`: replace the last command if it is of the same kind, during a drag. */
  edit(command, { again = false } = {}) {
    if (this.live) return;
    this.transcribed ??= { notes: this.notes, beats: this.beats };
    if (again && this.history.done.at(-1)?.label === command.label) {
      this.#run(this.history.undo());
      if (command.beats) command = { ...command, beats: [this.beats, command.beats[1]] };
    }
    this.#run(command);
    this.history.push(command);
    this.#changed();
  }

  /** Undo the last edit, or redo it. Return its command, or undefined if there is none. */
  undo() {
    return this.#step(this.history.undo());
  }

  redo() {
    return this.#step(this.history.redo());
  }

  /** Set the transcribed notes and beats of an edited take, which was transposed by `semitones`. */
  restoreEdits(notes, beats, semitones) {
    this.transcribed = { notes, beats };
    this.history.push(restore(notes, this.notes, [beats, this.beats], semitones));
  }

  /** Record that the browser stores this revision of the take, with this name. */
  recordStored(revision, name) {
    this.stored = true;
    this.kept = revision === this.revision && name === this.name;
  }

  /** Restore the transcribed notes and beats, as an edit that can be undone. */
  restoreTranscription() {
    if (!this.transcribed) return;
    const { notes, beats } = this.transcribed;
    this.edit(restore(this.notes, notes, [this.beats, beats], -this.transposed));
  }

  #step(command) {
    if (command) this.#run(command);
    this.#changed();
    return command;
  }

  #run(command) {
    this.notes = applied(this.notes, command);
    if (command.beats) this.beats = command.beats[1];
    this.saved = false;
  }

  get pedalDown() {
    return this.pedal.at(-1)?.offset === null;
  }

  noteOn(key, { pitch, velocity, confidence, instrument = null }, onset) {
    this.noteOff(key, onset);
    const note = { pitch, velocity, confidence, instrument, onset, offset: null };
    // Events arrive in order of time, so this loop ends immediately, except after a reconnect.
    let at = this.notes.length;
    while (at > 0 && this.notes[at - 1].onset > onset) at -= 1;
    this.notes.splice(at, 0, note);
    this.received.set(key, note);
    this.open.set(key, note);
    this.head = Math.max(this.head, onset);
    this.#changed();
  }

  noteOff(key, offset) {
    const note = this.open.get(key);
    if (!note) return;
    this.open.delete(key);
    note.offset = Math.max(offset, note.onset);
    this.head = Math.max(this.head, note.offset);
    this.#changed();
  }

  /**
   * Apply a message of the service. `key` identifies its note.
   * @param {any} message
   */
  receive(message, key = message.note_id) {
    const { type, time_s, down, instrument } = message;
    if (type === "note_on") this.noteOn(key, message, time_s);
    else if (type === "note_off") this.noteOff(key, time_s);
    else if (type === "note_bend") this.bend(key, message);
    else if (type === "note_update") this.reassign(key, instrument);
    else if (type === "pedal") this.pedalMoved(down, time_s);
    else if (type === "beat" && time_s > (this.beats.at(-1)?.time_s ?? -1)) this.beats.push(message);
  }

  /** Correct the instrument of a note. */
  reassign(key, instrument) {
    const note = this.received.get(key);
    if (!note) return;
    note.instrument = instrument;
    this.#changed();
  }

  /** Add the pitch bend of a sounding note: `cents` above its pitch in consecutive frames. */
  bend(key, { time_s, cents }) {
    const note = this.open.get(key);
    if (!note) return;
    note.bends ??= []; // [seconds, cents]
    for (const [i, value] of cents.entries()) note.bends.push([time_s + i * FRAME_S, value]);
    this.#changed();
  }

  pedalMoved(down, time) {
    const last = this.pedal.at(-1);
    if (this.pedalDown) last.offset = Math.max(time, last.onset);
    if (down) this.pedal.push({ onset: time, offset: null });
    this.#changed();
  }

  /** End all sounding notes. This is called whenever a session ends, so that no note hangs. */
  closeAll() {
    for (const key of [...this.open.keys()]) this.noteOff(key, this.head);
    this.pedalMoved(false, this.head);
  }

  rename(name) {
    if (name === this.name) return;
    this.name = name;
    this.title = "";
    this.kept = false;
    this.dispatchEvent(new Event("about"));
  }

  /** Record that all notes were saved. */
  recordSaved() {
    this.saved = true;
    this.dispatchEvent(new Event("about"));
  }

  /** Remove all notes of a live take. */
  clear() {
    this.notes = [];
    this.pedal = [];
    this.received.clear();
    this.open.clear();
    this.head = 0;
    this.#changed();
  }

  advance(head) {
    this.head = Math.max(this.head, head);
  }

  finish({ length = this.head, midi = null } = {}) {
    this.closeAll();
    this.live = this.stalled = false;
    this.length = Math.max(length, ...this.notes.slice(-64).map((note) => note.offset));
    this.midi = midi;
    this.#changed();
    this.dispatchEvent(new Event("finish"));
  }

  /** Notes that overlap [start, end). */
  *between(start, end) {
    for (const note of this.notes) {
      if (note.onset >= end) return;
      if (note.offset === null || note.offset >= start) yield note;
    }
  }

  #changed() {
    this.revision += 1;
    this.kept = false;
    this.dispatchEvent(new Event("change"));
  }
}
