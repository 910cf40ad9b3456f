/**
 * Buffer of audio that may have to be sent again, and the position up to which it was sent: 16-bit mono
 * PCM in chunks, counted in samples from the start of the take. If the buffer is full, the oldest
 * audio is dropped.
 */

const SAMPLE_BYTES = 2;

export class Backlog {
  #chunks = []; // {first, samples, pcm}, oldest first
  #next = 0; // index of the chunk to be sent next
  #mark = 0; // sample to be sent next
  #most;
  captured = 0;

  /** `most`: maximum number of samples. */
  constructor(most) {
    this.#most = most;
  }

  /** The oldest sample in the buffer. */
  get first() {
    return this.#chunks[0]?.first ?? this.captured;
  }

  /** Add a chunk. Return false if audio was dropped that had not been sent. */
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

  /** Set the position to a sample, from which `take` continues. */
  rewind(sample) {
    this.#mark = Math.max(sample, this.first);
    const at = this.#chunks.findIndex((chunk) => end(chunk) > this.#mark);
    this.#next = at === -1 ? this.#chunks.length : at;
  }

  /** The next PCM to send, or null if there is none. */
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
