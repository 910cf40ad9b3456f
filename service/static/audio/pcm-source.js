/**
 * Sound as a stream of PCM chunks, from whatever WebAudio node gives it.
 *
 * Events: `chunk` (what the worklet posts) and `notice` (words: something changed, the sound goes
 * on).
 */

const START_MS = 5000;
const WORKLET_URL = new URL("./pcm-worklet.js", import.meta.url);

export class PcmSource extends EventTarget {
  #node = null;
  #gain = null;
  #worklet = null;
  #factor = 1;
  #channel = -1;
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
      await Promise.race([this.context.resume(), noOutput()]);
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
    this.#gain = new GainNode(this.context, { gain: this.#factor });
    this.#worklet = new AudioWorkletNode(this.context, "pcm", {
      processorOptions: { channel: this.#channel },
    });
    this.#worklet.port.onmessage = ({ data }) =>
      this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    // The output stays silent; the connection is what makes every browser pull the audio.
    this.#node.connect(this.#gain).connect(this.#worklet).connect(this.context.destination);
    return this.#node;
  }

  /** Another node gives the sound from now on. */
  replace(node) {
    this.#node.disconnect();
    this.#node = node;
    if (this.#gain) node.connect(this.#gain);
  }

  set gain(decibels) {
    this.#factor = 10 ** (decibels / 20);
    this.#gain?.gain.setTargetAtTime(this.#factor, this.context.currentTime, 0.02);
  }

  /** The one to listen to, from 0; -1: all that have sound. */
  set channel(number) {
    this.#channel = number;
    this.#worklet?.port.postMessage({ channel: number });
  }

  async close() {
    const { context } = this;
    this.context = this.#gain = this.#worklet = null;
    if (context && context.state !== "closed") await context.close();
  }

  emit(type, words) {
    this.dispatchEvent(new CustomEvent(type, { detail: words }));
  }
}

/** Without any output Firefox never starts a context, and does not say so. */
async function noOutput() {
  await new Promise((resolve) => setTimeout(resolve, START_MS));
  throw new Error("The browser’s audio does not start. Are loudspeakers or headphones connected?");
}
