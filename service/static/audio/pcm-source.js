/**
 * Sound as a stream of PCM chunks, from whatever WebAudio node gives it.
 *
 * Events: `chunk` {pcm, samples, peak}, `notice` (words: something changed, the sound goes on) and
 * `ended` (words, or "" where the end was to be expected) when no more sound will come.
 */

const WORKLET_URL = new URL("./pcm-worklet.js", import.meta.url);

export class PcmSource extends EventTarget {
  #node = null;
  context = null;

  /** Samples a second, known once opened. */
  get rate() {
    return this.context?.sampleRate ?? 0;
  }

  /** Subclasses return the node that gives the sound; they throw Errors fit for the page. */
  async connect() {
    throw new TypeError("a source says where its sound comes from");
  }

  async open() {
    try {
      this.#node = await this.connect();
      await this.context.resume();
    } catch (error) {
      await this.close();
      throw error;
    }
    try {
      await this.context.audioWorklet.addModule(WORKLET_URL);
    } catch (cause) {
      await this.close();
      throw new Error("The server cannot be reached.", { cause });
    }
  }

  /** Let the audio flow: chunks are dispatched from now on. */
  start() {
    const worklet = new AudioWorkletNode(this.context, "pcm");
    worklet.port.onmessage = ({ data }) =>
      this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    // The output stays silent; the connection is what makes every browser pull the audio.
    this.#node.connect(worklet).connect(this.context.destination);
    return this.#node;
  }

  async close() {
    const { context } = this;
    this.context = null;
    if (context && context.state !== "closed") await context.close();
  }

  emit(type, words) {
    this.dispatchEvent(new CustomEvent(type, { detail: words }));
  }
}
