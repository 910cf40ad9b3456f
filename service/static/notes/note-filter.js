/**
 * Which notes are shown, played, sent and saved: those sure enough and long enough, of instruments
 * that are not muted, or that are played solo, of one hand or of both. The take keeps all, so a filter
 * can be turned back. Emits `change`.
 */

export class NoteFilter extends EventTarget {
  confidence = 0; // least, 0..1
  seconds = 0; // least length
  hand = ""; // "left", "right", or "" for both
  #hands = new Map(); // note -> its hand
  #muted = new Set(); // instruments
  #solo = new Set();

  get neutral() {
    const chosen = this.#muted.size + this.#solo.size;
    return this.confidence === 0 && this.seconds === 0 && chosen === 0 && !this.hand;
  }

  isMuted(instrument) {
    return this.#muted.has(instrument);
  }

  isSolo(instrument) {
    return this.#solo.has(instrument);
  }

  /** True if notes of the instrument pass. */
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

  /** Play "left", "right" or both hands (""), `hands` as `handsOf` has them; other notes are played. */
  play(hand, hands) {
    this.hand = hand;
    this.#hands = hands;
    this.#changed();
  }

  /** Hear all instruments and hands: those of another take are others. */
  hearAll() {
    this.#muted.clear();
    this.#solo.clear();
    this.hand = "";
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
      (!this.hand || (this.#hands.get(note) ?? this.hand) === this.hand) &&
      (note.offset ?? now) - note.onset >= this.seconds - 1e-9
    );
  }

  notesOf(take) {
    if (this.neutral) return take.notes;
    return take.notes.filter((note) => this.passes(note, take.head));
  }
}
