/**
 * The sound of a take, to be played with its notes and to be saved.
 *
 * Both kinds answer `part(context, from)` with {buffer, start, end}: an AudioBuffer and the
 * seconds of the take that it covers, `from` among them. `file(name)` is all of it.
 */

import { wavHeader, wavOf } from "./wav.js";

const FOLD_S = 10; // in such pieces audio goes into blobs, which the browser may put on disk
const PART_S = 30; // played at a time
const WAV_HZ = 48_000; // of recordings that are no WAV
const MAX_KEPT_S = 2 * 3600; // 0.7 GB at 48 kHz
const MAX_DECODED_S = 20 * 60; // of a file: decoded it takes 0.4 MB a second

/** The sound of a live take: 16-bit mono PCM. */
export class LiveRecording {
  #blobs = [];
  #fresh = []; // ArrayBuffers not yet folded into a blob
  #freshSamples = 0;
  #samples = 0;

  constructor(rate) {
    this.rate = rate;
  }

  /** A recording from its parts, each a blob of PCM. */
  static of(rate, blobs) {
    const recording = new LiveRecording(rate);
    recording.#blobs = blobs;
    recording.#samples = blobs.reduce((bytes, { size }) => bytes + size, 0) / 2;
    return recording;
  }

  /** Blobs that stay as they are; the newest seconds only once nothing more is to come. */
  parts(growing) {
    if (!growing) this.#fold();
    return [...this.#blobs];
  }

  get seconds() {
    return this.#samples / this.rate;
  }

  /** False once the recording is as long as it may get; the rest is not kept. */
  add(pcm, samples) {
    if (this.seconds >= MAX_KEPT_S) return false;
    this.#fresh.push(pcm);
    this.#freshSamples += samples;
    this.#samples += samples;
    if (this.#freshSamples >= FOLD_S * this.rate) this.#fold();
    return true;
  }

  #fold() {
    if (!this.#freshSamples) return;
    this.#blobs.push(new Blob(this.#fresh));
    this.#fresh = [];
    this.#freshSamples = 0;
  }

  wav() {
    this.#fold();
    return new Blob([wavHeader(this.rate, this.#samples), ...this.#blobs], { type: "audio/wav" });
  }

  file(name) {
    return new File([this.wav()], `${name}.wav`);
  }

  async part(context, from) {
    const first = Math.floor(from * this.rate);
    const last = Math.min(this.#samples, first + PART_S * this.rate);
    // `from` may be the very end, and a rounding error take it for the sample before.
    if (last <= first || last / this.rate <= from) return null;
    const pcm = await this.wav().slice(44 + 2 * first, 44 + 2 * last).arrayBuffer();
    const view = new DataView(pcm);
    const buffer = context.createBuffer(1, last - first, this.rate);
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    return { buffer, start: first / this.rate, end: last / this.rate };
  }
}

/** A recording that was dropped on the page; decoded when it is first played. */
export class FileRecording {
  #file;
  #buffer = null;

  constructor(file) {
    this.#file = file;
  }

  get fileName() {
    return this.#file.name;
  }

  parts() {
    return [this.#file];
  }

  file() {
    return this.#file;
  }

  /** `seconds`: the length, as far as the page knows it. Throws if it cannot be played. */
  async part(context, from, seconds) {
    if (seconds > MAX_DECODED_S) {
      throw new Error(`Recordings above ${MAX_DECODED_S / 60} minutes play without their sound.`);
    }
    this.#buffer ??= this.#decode(context);
    const buffer = await this.#buffer;
    return from < buffer.duration ? { buffer, start: 0, end: buffer.duration } : null;
  }

  async #decode(context) {
    try {
      return await context.decodeAudioData(await this.#file.arrayBuffer());
    } catch (cause) {
      throw new Error("The browser cannot play this recording; its notes play alone.", { cause });
    }
  }

  /** As a WAV file; one that is WAV already stays as it is. Throws as `part` does. */
  async wav(seconds) {
    if (/\.wav$/i.test(this.#file.name)) return this.#file;
    if (seconds > MAX_DECODED_S) throw new Error(`${MAX_DECODED_S / 60} minutes at most become WAV.`);
    return wavOf(await this.#decode(new OfflineAudioContext(2, 1, WAV_HZ)));
  }

  /** Give the decoded sound back; the file stays. */
  release() {
    this.#buffer = null;
  }
}
