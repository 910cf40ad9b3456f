/**
 * Finished notes by time, in buckets of a few seconds. What overlaps a stretch of time is found
 * with work in proportion to that stretch, however long the take and its longest note are.
 */

const BUCKET_S = 4;

const bucketOf = (seconds) => Math.floor(Math.max(0, seconds) / BUCKET_S);

export class NoteIndex {
  #buckets = []; // every note stands in each bucket that it touches

  add(note) {
    const last = bucketOf(note.offset);
    for (let at = bucketOf(note.onset); at <= last; at += 1) {
      this.#buckets[at] ??= [];
      this.#buckets[at].push(note);
    }
  }

  /** Notes that overlap [start, end), each once. */
  *between(start, end) {
    const first = bucketOf(start);
    const last = Math.min(this.#buckets.length - 1, bucketOf(end));
    for (let at = first; at <= last; at += 1) {
      for (const note of this.#buckets[at] ?? []) {
        const { onset } = note;
        if (onset >= end || note.offset < start) continue;
        // It comes in its first bucket, or in the first one that was asked for.
        if (at === first || bucketOf(onset) === at) yield note;
      }
    }
  }
}
