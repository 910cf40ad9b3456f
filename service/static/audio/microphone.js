/**
 * The microphone. Music must arrive as it sounds, so the browser's speech helpers (echo
 * cancellation, noise suppression, gain control) are turned off.
 */

import { PcmSource } from "./pcm-source.js";

const INTERRUPTED = new Set(["suspended", "interrupted"]);
const RETURNS = ["visibilitychange", "pointerdown", "keydown"]; // of the user
const MOST_CHANNELS = 32;

export class Microphone extends PcmSource {
  #deviceId;
  #stream = null;
  #missing = false; // unplugged: the take goes on with it, or with the next default one
  #onDevices = () => this.#missing && this.#takeUp();
  #revive = () => INTERRUPTED.has(this.context?.state) && this.context.resume().catch(() => {});

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
    try {
      this.#stream = await this.#ask();
      // The context runs at the system's own rate; the server resamples better than we would.
      this.context = new AudioContext({ latencyHint: "interactive" });
      const node = this.#listen();
      this.#watch();
      return node;
    } catch (cause) {
      throw new Error(wordsFor(cause), { cause });
    }
  }

  #ask() {
    const audio = {
      echoCancellation: false,
      noiseSuppression: false,
      autoGainControl: false,
      channelCount: { ideal: MOST_CHANNELS }, // unasked, browsers mix them
      ...(this.#deviceId && { deviceId: { exact: this.#deviceId } }),
    };
    return navigator.mediaDevices.getUserMedia({ audio });
  }

  /** The node of the stream, and what may happen to it in words. */
  #listen() {
    const [track] = this.#stream.getAudioTracks();
    track.addEventListener("ended", () => {
      this.#missing = true;
      this.emit("notice", "The microphone is gone; the take goes on once it is back.");
      this.#takeUp();
    });
    track.addEventListener("mute", () => this.emit("notice", "The system muted the microphone."));
    track.addEventListener("unmute", () => {
      this.emit("notice", "");
      this.#revive();
    });
    return this.context.createMediaStreamSource(this.#stream);
  }

  async #takeUp() {
    const stream = await this.#ask().catch(() => null); // not there yet
    if (!stream) return;
    if (!this.context || !this.#missing) {
      for (const track of stream.getTracks()) track.stop(); // stopped, or taken up, meanwhile
      return;
    }
    this.#missing = false;
    this.#stream = stream;
    this.replace(this.#listen());
    this.emit("notice", "");
  }

  /** A phone call suspends the context; some systems resume it only when the user is back. */
  #watch() {
    navigator.mediaDevices.addEventListener?.("devicechange", this.#onDevices);
    for (const type of RETURNS) document.addEventListener(type, this.#revive);
    let interrupted = false;
    this.context.addEventListener("statechange", () => {
      if (INTERRUPTED.has(this.context?.state)) {
        interrupted = true;
        this.emit("notice", "The system interrupted the audio; the take goes on when it returns.");
        this.#revive();
      } else if (interrupted && this.context?.state === "running") {
        interrupted = false;
        this.emit("notice", "");
      }
    });
  }

  async close() {
    navigator.mediaDevices?.removeEventListener?.("devicechange", this.#onDevices);
    for (const type of RETURNS) document.removeEventListener(type, this.#revive);
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
