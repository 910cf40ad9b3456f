/**
 * Selects the notes to show, play, send and save by their confidence and duration, by muted and solo
 * instruments, and by hand. The take still contains all notes, so the filter can be changed. Emits
 * `change`.
 */

export class NoteFilter extends EventTarget {
  confidence = 0; // minimum confidence, 0..1
  seconds = 0; // minimum duration
  hand = ""; // "left", "right", or "" for both
  #hands = new Map(); // note -> hand
  #muted = new Set(); // muted instruments
  #solo = new Set();

  get neutral() {
    const chosen = this.#muted.size + this.#solo.size;
    return this.confidence === 0 && this.seconds === 0 && chosen === 0 && !this.hand;
  }

  /** A filter for takes that are not shown: instruments and hands are those of the shown take. */
  get ofOtherTakes() {
    const { confidence, seconds } = this;
    return Object.assign(new NoteFilter(), { confidence, seconds });
  }

  isMuted(instrument) {
    return this.#muted.has(instrument);
  }

  isSolo(instrument) {
    return this.#solo.has(instrument);
  }

  /** True if notes of the instrument pass the filter. */
  allows(instrument) {
    return this.#solo.size ? this.#solo.has(instrument) : !this.#muted.has(instrument);
  }

  /** Mute or unmute an instrument. */
  mute(instrument) {
    this.#turn(this.#muted, instrument);
  }

  /** Start or stop solo playback of an instrument. Several instruments can be solo. */
  solo(instrument) {
    this.#turn(this.#solo, instrument);
  }

  /** Play "left", "right" or both hands (""). `hands` comes from `handsOf`. Notes without a hand pass. */
  play(hand, hands) {
    this.hand = hand;
    this.#hands = hands;
    this.#changed();
  }

  /** Reset instruments and hands, because another take has others. */
  allowAll() {
    this.#muted.clear();
    this.#solo.clear();
    this.hand = "";
    this.#changed();
  }

  #turn(set, instrument) {
    if (!set.delete(instrument)) set.add(instrument);
    this.#changed();
  }

  set({ confidence, seconds }) {
    this.confidence = confidence;
    this.seconds = seconds;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** `now`: time up to which a note without an offset has sounded. */
  passes(note, now) {
    return (
      note.confidence >= this.confidence &&
      this.allows(note.instrument) &&
      (!this.hand || (this.#hands.get(note) ?? this.hand) === this.hand) &&
      (note.offset ?? now) - note.onset >= this.seconds - 1e-9
    );
  }

  notesOf(take) {
    if (this.neutral) return take.notes;
    return take.notes.filter((note) => this.passes(note, take.head));
  }
}
