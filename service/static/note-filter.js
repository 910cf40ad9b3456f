/**
 * Which notes are shown, played, sent and saved: those sure enough and long enough. The take keeps
 * all, so a filter can be turned back. Emits `change`.
 */

export class NoteFilter extends EventTarget {
  confidence = 0; // least, 0..1
  seconds = 0; // least length

  get neutral() {
    return this.confidence === 0 && this.seconds === 0;
  }

  set({ confidence = this.confidence, seconds = this.seconds }) {
    this.confidence = confidence;
    this.seconds = seconds;
    this.dispatchEvent(new Event("change"));
  }

  /** `now`: the moment up to which a note without an end has sounded. */
  passes(note, now) {
    return (
      note.confidence >= this.confidence && (note.offset ?? now) - note.onset >= this.seconds - 1e-9
    );
  }

  notesOf(take) {
    return take.notes.filter((note) => this.passes(note, take.head));
  }

  /** How many `notesOf` would give. */
  count(take) {
    if (this.neutral) return take.notes.length;
    let count = 0;
    for (const note of take.notes) if (this.passes(note, take.head)) count += 1;
    return count;
  }
}
