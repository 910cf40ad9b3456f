/**
 * Buffer of audio that may have to be sent again, and the position up to which it was sent: 16-bit mono
 * PCM in chunks, counted in samples from the start of the take. If the buffer is full, the oldest
 * audio is dropped.
 */

const SAMPLE_BYTES = 2;

export class Backlog {
  #chunks = []; // {first, samples, pcm}, oldest first
  #next = 0; // index of the chunk to be sent next
  #position = 0; // sample to be sent next
  #maxSamples;
  captured = 0;

  /** `maxSamples`: maximum number of samples. */
  constructor(maxSamples) {
    this.#maxSamples = maxSamples;
  }

  /** The oldest sample in the buffer. */
  get first() {
    return this.#chunks[0]?.first ?? this.captured;
  }

  /** Add a chunk. Return false if audio was dropped that had not been sent. */
  add(pcm, samples) {
    this.#chunks.push({ first: this.captured, samples, pcm });
    this.captured += samples;
    this.releaseBefore(this.captured - this.#maxSamples);
    return this.#position >= this.first;
  }

  /** Drop the chunks that end before a sample. */
  releaseBefore(sample) {
    let count = 0;
    while (count < this.#chunks.length && end(this.#chunks[count]) <= sample) count += 1;
    this.#chunks.splice(0, count);
    this.#next = Math.max(0, this.#next - count);
  }

  /** Set the position to a sample, from which `next` continues. */
  rewind(sample) {
    this.#position = Math.max(sample, this.first);
    const at = this.#chunks.findIndex((chunk) => end(chunk) > this.#position);
    this.#next = at === -1 ? this.#chunks.length : at;
  }

  /** Return the next PCM to send, or null if there is none. */
  next() {
    const chunk = this.#chunks[this.#next];
    if (!chunk) return null;
    const sent = Math.max(0, this.#position - chunk.first);
    this.#next += 1;
    this.#position = end(chunk);
    return sent ? chunk.pcm.slice(sent * SAMPLE_BYTES) : chunk.pcm;
  }
}

const end = ({ first, samples }) => first + samples;
