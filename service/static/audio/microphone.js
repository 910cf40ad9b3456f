/**
 * The microphone. Music must arrive as it sounds, so the browser's speech helpers (echo
 * cancellation, noise suppression, gain control) are turned off.
 */

import { PcmSource } from "./pcm-source.js";

const INTERRUPTED = new Set(["suspended", "interrupted"]);

export class Microphone extends PcmSource {
  #deviceId;
  #stream = null;
  #deviceRate = 0;
  #onDevices = () => this.#compareRate();

  /** Names of the inputs; empty names until the user has allowed a microphone once. */
  static async devices() {
    if (!navigator.mediaDevices?.enumerateDevices) return [];
    const all = await navigator.mediaDevices.enumerateDevices();
    return all.filter((device) => device.kind === "audioinput" && device.deviceId);
  }

  constructor(deviceId = "") {
    super();
    this.#deviceId = deviceId;
  }

  async connect() {
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
      ...(this.#deviceId && { deviceId: { exact: this.#deviceId } }),
    };
    let node;
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({ audio });
      // The context runs at the system's own rate; the server resamples better than we would.
      this.context = new AudioContext({ latencyHint: "interactive" });
      node = this.context.createMediaStreamSource(this.#stream);
    } catch (cause) {
      throw new Error(wordsFor(cause), { cause });
    }
    this.#watch();
    return node;
  }

  /** What may happen to the device while it is heard, in words. */
  #watch() {
    const [track] = this.#stream.getAudioTracks();
    this.#deviceRate = track.getSettings().sampleRate;
    track.addEventListener("ended", () =>
      this.emit("ended", "The microphone was disconnected. The notes so far are kept."),
    );
    track.addEventListener("mute", () => this.emit("notice", "The system muted the microphone."));
    track.addEventListener("unmute", () => this.emit("notice", ""));
    navigator.mediaDevices.addEventListener?.("devicechange", this.#onDevices);
    this.context.addEventListener("statechange", () => {
      if (!INTERRUPTED.has(this.context?.state)) return;
      this.emit("notice", "The system interrupted the audio; the take continues when it returns.");
      this.context.resume().then(() => this.emit("notice", ""), () => {});
    });
  }

  /** The context keeps its rate for the whole take; a device that changes its own is converted. */
  #compareRate() {
    const rate = this.#stream?.getAudioTracks()[0]?.getSettings().sampleRate;
    if (!rate || rate === this.#deviceRate) return;
    this.#deviceRate = rate;
    const kilohertz = (hertz) => `${hertz / 1000} kHz`;
    this.emit(
      "notice",
      `The input now runs at ${kilohertz(rate)}; the browser converts it to ` +
        `${kilohertz(this.rate)} and the take continues.`,
    );
  }

  async close() {
    navigator.mediaDevices?.removeEventListener?.("devicechange", this.#onDevices);
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    await super.close();
  }
}

function wordsFor(cause) {
  switch (cause.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The browser blocks the microphone. Allow it next to the address, then press Listen.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "Microphone not found. Plug it in or choose another input.";
    case "NotReadableError":
      return "The microphone is in use by another program, or the system refuses it.";
    case "NotSupportedError": // of createMediaStreamSource, where rates are not converted
      return (
        "This browser cannot take an input whose sample rate differs from the system's. " +
        "Set both to the same rate, or use another browser."
      );
    default:
      return `The microphone could not be started: ${cause.message}`;
  }
}
