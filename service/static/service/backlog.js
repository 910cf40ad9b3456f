/**
 * Audio that may have to be sent again, and a mark up to which it was sent: 16-bit mono PCM in
 * chunks, counted in samples since the first one of the take. What is too much to keep is lost
 * from the old end.
 */

const SAMPLE_BYTES = 2;

export class Backlog {
  #chunks = []; // {first, samples, pcm}, oldest first
  #next = 0; // index of the chunk to be sent next
  #mark = 0; // sample to be sent next
  #most;
  captured = 0;

  /** `most`: samples to keep. */
  constructor(most) {
    this.#most = most;
  }

  /** The oldest sample that is kept. */
  get first() {
    return this.#chunks[0]?.first ?? this.captured;
  }

  /** False if audio that was not sent had to go. */
  add(pcm, samples) {
    this.#chunks.push({ first: this.captured, samples, pcm });
    this.captured += samples;
    this.forgetBefore(this.captured - this.#most);
    return this.#mark >= this.first;
  }

  forgetBefore(sample) {
    let count = 0;
    while (count < this.#chunks.length && end(this.#chunks[count]) <= sample) count += 1;
    this.#chunks.splice(0, count);
    this.#next = Math.max(0, this.#next - count);
  }

  /** Go back, or on, to a sample: `take` gives the audio from there. */
  rewind(sample) {
    this.#mark = Math.max(sample, this.first);
    const at = this.#chunks.findIndex((chunk) => end(chunk) > this.#mark);
    this.#next = at === -1 ? this.#chunks.length : at;
  }

  /** The next PCM to be sent, null if all was. */
  take() {
    const chunk = this.#chunks[this.#next];
    if (!chunk) return null;
    const known = Math.max(0, this.#mark - chunk.first);
    this.#next += 1;
    this.#mark = end(chunk);
    return known ? chunk.pcm.slice(known * SAMPLE_BYTES) : chunk.pcm;
  }
}

const end = ({ first, samples }) => first + samples;
