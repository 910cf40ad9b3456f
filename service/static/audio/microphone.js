/**
 * The microphone as a stream of PCM chunks. The browser's speech processing (echo cancellation, noise
 * suppression, gain control) is turned off, because it distorts music.
 *
 * Events: `chunk` (a message of the worklet) and `notice` (a text about an interruption, "" once it is
 * over).
 */

import { setAudioSession } from "./session.js";

const INTERRUPTED = new Set(["suspended", "interrupted"]);
const USER_EVENTS = ["visibilitychange", "pointerdown", "keydown"]; // signs that the user is back
const MAX_CHANNELS = 32;
const PROCESSING = {
  echoCancellation: "echo cancellation",
  noiseSuppression: "noise suppression",
  autoGainControl: "automatic gain",
};
const START_MS = 5000;
const WORKLET_URL = new URL("./pcm-worklet.js", import.meta.url);

export class Microphone extends EventTarget {
  #deviceId;
  #context = null;
  #stream = null;
  #node = null;
  #gain = null;
  #worklet = null;
  #factor = 1;
  #channel = -1;
  #missing = false; // true while unplugged; the take continues with it or with the new default input
  #onDevices = () => this.#missing && this.#reconnect();
  #resume = () => INTERRUPTED.has(this.#context?.state) && this.#context.resume().catch(() => {});

  /** The inputs. Their names are empty until the user has allowed a microphone once. */
  static async devices() {
    if (!navigator.mediaDevices?.enumerateDevices) return [];
    const all = await navigator.mediaDevices.enumerateDevices();
    return all.filter((device) => device.kind === "audioinput" && device.deviceId);
  }

  constructor(deviceId = "") {
    super();
    this.#deviceId = deviceId;
  }

  /** Sample rate in Hz; 0 until the microphone is open. */
  get rate() {
    return this.#context?.sampleRate ?? 0;
  }

  /** Open the microphone. Throws Errors whose messages the page can show. */
  async open() {
    setAudioSession("play-and-record");
    try {
      await this.#connect();
      await Promise.race([this.#context.resume(), noOutput()]);
    } catch (error) {
      await this.close();
      throw error;
    }
    try {
      await this.#context.audioWorklet.addModule(WORKLET_URL);
    } catch (cause) {
      await this.close();
      throw new Error("The server cannot be reached.", { cause });
    }
  }

  /** Start to dispatch chunks. */
  start() {
    this.#gain = new GainNode(this.#context, { gain: this.#factor });
    this.#worklet = new AudioWorkletNode(this.#context, "pcm", {
      processorOptions: { channel: this.#channel },
    });
    this.#worklet.port.onmessage = ({ data }) =>
      this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    // The output is silent, but browsers process the audio only if it is connected.
    this.#node.connect(this.#gain).connect(this.#worklet).connect(this.#context.destination);
  }

  /** A text about processing that the browser applies in spite of our request; "" if none. */
  get processing() {
    const settings = this.#stream?.getAudioTracks()[0]?.getSettings() ?? {};
    const names = Object.keys(PROCESSING).filter((name) => settings[name]);
    const applied = names.map((name) => PROCESSING[name]).join(" and ");
    return applied && `The browser applies ${applied}, which distorts music. Try another input or browser.`;
  }

  set gain(decibels) {
    this.#factor = 10 ** (decibels / 20);
    this.#gain?.gain.setTargetAtTime(this.#factor, this.#context.currentTime, 0.02);
  }

  /** The channel to use, counted from 0; -1: all channels that have sound. */
  set channel(number) {
    this.#channel = number;
    this.#worklet?.port.postMessage({ channel: number });
  }

  async close() {
    navigator.mediaDevices?.removeEventListener?.("devicechange", this.#onDevices);
    for (const type of USER_EVENTS) document.removeEventListener(type, this.#resume);
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    const context = this.#context;
    this.#stream = this.#context = this.#gain = this.#worklet = null;
    if (context && context.state !== "closed") await context.close();
    setAudioSession("auto");
  }

  #notice(message) {
    this.dispatchEvent(new CustomEvent("notice", { detail: message }));
  }

  async #connect() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Error(
        "Browsers allow the microphone only on https pages and on localhost. " +
          "Open this page there, or drop a recording instead.",
      );
    }
    try {
      this.#stream = await this.#requestStream();
      // The context runs at the system's rate, because the server resamples better than browsers.
      this.#context = new AudioContext({ latencyHint: "interactive" });
      this.#node = this.#createNode();
      this.#watch();
    } catch (cause) {
      throw new Error(messageFor(cause), { cause });
    }
  }

  #requestStream() {
    const audio = {
      ...Object.fromEntries(Object.keys(PROCESSING).map((name) => [name, false])),
      channelCount: { ideal: MAX_CHANNELS }, // otherwise browsers mix the channels
      ...(this.#deviceId && { deviceId: { exact: this.#deviceId } }),
    };
    return navigator.mediaDevices.getUserMedia({ audio });
  }

  /** Create the node of the stream, and report its interruptions. */
  #createNode() {
    const [track] = this.#stream.getAudioTracks();
    track.addEventListener("ended", () => {
      this.#missing = true;
      this.#notice("The microphone was disconnected. The take continues once it is connected again.");
      this.#reconnect();
    });
    track.addEventListener("mute", () => this.#notice("The system muted the microphone."));
    track.addEventListener("unmute", () => {
      this.#notice("");
      this.#resume();
    });
    return this.#context.createMediaStreamSource(this.#stream);
  }

  async #reconnect() {
    const stream = await this.#requestStream().catch(() => null); // the microphone is still missing
    if (!stream) return;
    if (!this.#context || !this.#missing) {
      for (const track of stream.getTracks()) track.stop(); // closed or replaced during the request
      return;
    }
    this.#missing = false;
    this.#stream = stream;
    this.#node.disconnect();
    this.#node = this.#createNode();
    if (this.#gain) this.#node.connect(this.#gain);
    this.#notice("");
  }

  /** Handle interruptions, such as a phone call. Some systems resume the context only once the user is back. */
  #watch() {
    navigator.mediaDevices.addEventListener?.("devicechange", this.#onDevices);
    for (const type of USER_EVENTS) document.addEventListener(type, this.#resume);
    let interrupted = false;
    this.#context.addEventListener("statechange", () => {
      if (INTERRUPTED.has(this.#context?.state)) {
        interrupted = true;
        this.#notice("The system interrupted the audio. The take continues afterwards.");
        this.#resume();
      } else if (interrupted && this.#context?.state === "running") {
        interrupted = false;
        this.#notice("");
      }
    });
  }
}

/** Throw after START_MS: without an output device, Firefox never starts a context and reports no error. */
async function noOutput() {
  await new Promise((resolve) => setTimeout(resolve, START_MS));
  throw new Error("The browser’s audio does not start. Are loudspeakers or headphones connected?");
}

function messageFor(cause) {
  switch (cause.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The browser blocks the microphone. Allow it next to the address, then press Listen.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "Microphone not found. Plug it in or choose another input.";
    case "NotReadableError":
      return "The microphone is in use by another program, or the system blocks it.";
    case "NotSupportedError": // from createMediaStreamSource, in browsers that do not convert rates
      return (
        "This browser does not support inputs whose sample rate differs from the system's. " +
        "Set both to the same rate, or use another browser."
      );
    default:
      return `The microphone could not be started: ${cause.message}`;
  }
}
