/** The input: device, channel, level, gain, and warnings. */

import { Meter } from "../audio/meter.js";
import { Microphone } from "../audio/microphone.js";
import { $ } from "../page.js";

const SILENCE = 0.001; // peak of -60 dB, the lower end of the meter
const SILENT_S = 3;
const NO_SOUND = "No sound from this input: choose another, or raise its gain.";
const ONLY_REASONS = {
  silent: "no other has sound.",
  cancelled: "mixed, the channels would cancel each other out.",
};

export class InputPanel {
  #meter = new Meter($("meter"));
  #source = null;
  #silentS = 0;

  constructor() {
    $("gain").addEventListener("input", () => this.#apply());
    $("channel").addEventListener("change", () => this.#apply());
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.list());
    this.list();
    this.#apply();
  }

  /** Create a microphone with the chosen settings. */
  microphone() {
    return new Microphone($("device").value);
  }

  set enabled(value) {
    $("device").disabled = !value;
  }

  /** Show the level of a source until `end`. */
  begin(source) {
    this.#source = source;
    this.#silentS = 0;
    this.#apply();
  }

  end() {
    this.#source = null;
    this.#meter.reset();
    this.#showHint("");
  }

  /** Handle a chunk of the source, as the worklet posts it. Return a warning, or "". */
  process({ peak, samples, channels, onlyChannel, onlyReason }) {
    this.#meter.push(peak);
    this.#silentS = peak < SILENCE ? this.#silentS + samples / this.#source.rate : 0;
    this.#listChannels(channels);
    const hint = `Only channel ${onlyChannel + 1} is used: ${ONLY_REASONS[onlyReason]}`;
    this.#showHint(onlyReason ? hint : this.#source.processing);
    return this.#silentS >= SILENT_S ? NO_SOUND : "";
  }

  /** List the devices. Their names are available only after the user has allowed a microphone. */
  async list() {
    const devices = await Microphone.devices();
    const chosen = $("device").value;
    const options = devices.map(({ deviceId, label }, index) => {
      const text = label || `Microphone ${index + 1}`;
      return new Option(text, deviceId, false, deviceId === chosen);
    });
    if (options.length) $("device").replaceChildren(...options);
  }

  #listChannels(count) {
    $("channel").hidden = count < 2;
    if ($("channel").length === count + 1) return;
    const numbers = Array.from({ length: count }, (_, at) => new Option(`${at + 1}`, `${at}`));
    $("channel").replaceChildren(new Option("All", "-1"), ...numbers);
    this.#apply();
  }

  #apply() {
    const decibels = Number($("gain").value);
    $("gain-value").textContent = `${decibels > 0 ? "+" : ""}${decibels} dB`;
    if (!this.#source) return;
    this.#source.gain = decibels;
    this.#source.channel = Number($("channel").value || -1);
  }

  #showHint(message) {
    if ($("input-hint").textContent !== message) $("input-hint").textContent = message;
    $("input-hint").hidden = !message;
  }
}
