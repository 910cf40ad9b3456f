/**
 * Which notes are shown, played, sent and saved: those sure enough and long enough, of instruments
 * that are not muted, or that are played solo. The take keeps all, so a filter can be turned back.
 * Emits `change`.
 */

export class NoteFilter extends EventTarget {
  confidence = 0; // least, 0..1
  seconds = 0; // least length
  #muted = new Set(); // instruments
  #solo = new Set();

  get neutral() {
    const chosen = this.#muted.size + this.#solo.size;
    return this.confidence === 0 && this.seconds === 0 && chosen === 0;
  }

  isMuted(instrument) {
    return this.#muted.has(instrument);
  }

  isSolo(instrument) {
    return this.#solo.has(instrument);
  }

  /** Whether notes of the instrument count at all. */
  hears(instrument) {
    return this.#solo.size ? this.#solo.has(instrument) : !this.#muted.has(instrument);
  }

  /** Mute an instrument, or let it be heard again. */
  mute(instrument) {
    this.#turn(this.#muted, instrument);
  }

  /** Play an instrument alone, with others that are, or with all again. */
  solo(instrument) {
    this.#turn(this.#solo, instrument);
  }

  /** Hear all instruments: those of another take are others. */
  hearAll() {
    this.#muted.clear();
    this.#solo.clear();
    this.#changed();
  }

  #turn(set, instrument) {
    if (!set.delete(instrument)) set.add(instrument);
    this.#changed();
  }

  set({ confidence = this.confidence, seconds = this.seconds }) {
    this.confidence = confidence;
    this.seconds = seconds;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** `now`: the moment up to which a note without an end has sounded. */
  passes(note, now) {
    return (
      note.confidence >= this.confidence &&
      this.hears(note.instrument) &&
      (note.offset ?? now) - note.onset >= this.seconds - 1e-9
    );
  }

  notesOf(take) {
    if (this.neutral) return take.notes;
    return take.notes.filter((note) => this.passes(note, take.head));
  }
}
