/**
 * The microphone as a stream of PCM chunks.
 *
 * Music must arrive as it sounds, so the browser's speech helpers (echo cancellation, noise
 * suppression, gain control) are turned off. Events: `chunk` {pcm, samples, peak} and `ended`
 * when the device goes away.
 */

const WORKLET_URL = new URL("./pcm-worklet.js", import.meta.url);

export class Microphone extends EventTarget {
  #context = null;
  #stream = null;
  rate = 0; // samples a second, known once opened

  /** Names of the inputs; empty names until the user has allowed a microphone once. */
  static async devices() {
    if (!navigator.mediaDevices?.enumerateDevices) return [];
    const all = await navigator.mediaDevices.enumerateDevices();
    return all.filter((device) => device.kind === "audioinput" && device.deviceId);
  }

  /** Ask for the device and start it; throws an Error whose message is fit for the page. */
  async open(deviceId = "") {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error(
        "Browsers allow the microphone only on https pages and on localhost. " +
          "Open this page there, or drop a recording instead.",
      );
    }
    const audio = {
      echoCancellation: false,
      noiseSuppression: false,
      autoGainControl: false,
      ...(deviceId && { deviceId: { exact: deviceId } }),
    };
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({ audio });
      // The context runs at the device's own rate; the server resamples better than we would.
      this.#context = new AudioContext({ latencyHint: "interactive" });
      await this.#context.resume();
      this.rate = this.#context.sampleRate;
    } catch (cause) {
      await this.close();
      throw new Error(wordsFor(cause), { cause });
    }
    try {
      await this.#context.audioWorklet.addModule(WORKLET_URL);
    } catch (cause) {
      await this.close();
      throw new Error("The server cannot be reached.", { cause });
    }
    for (const track of this.#stream.getAudioTracks()) {
      track.addEventListener("ended", () => this.dispatchEvent(new Event("ended")));
    }
  }

  /** Let the audio flow: chunks are dispatched from now on. */
  start() {
    const source = this.#context.createMediaStreamSource(this.#stream);
    const worklet = new AudioWorkletNode(this.#context, "pcm");
    worklet.port.onmessage = ({ data }) =>
      this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    // The output stays silent; the connection is what makes every browser pull the audio.
    source.connect(worklet).connect(this.#context.destination);
  }

  async close() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    const context = this.#context;
    this.#context = null;
    if (context && context.state !== "closed") await context.close();
  }
}

function wordsFor(cause) {
  switch (cause.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The browser may not use the microphone. Allow it beside the address, then press Listen.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "That microphone is not there. Plug it in or choose another input.";
    case "NotReadableError":
      return "The microphone is in use by another program, or the system refuses it.";
    default:
      return `The microphone could not be started: ${cause.message}`;
  }
}
