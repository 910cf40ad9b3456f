/**
 * The sound of a take, which can be played with its notes and saved.
 *
 * `part(context, from)` of both kinds returns {buffer, start, end}: an AudioBuffer, and the seconds of
 * the take that it covers, which include `from`. `file(name)` returns the complete recording.
 */

import { wavHeader, wavOf } from "./wav.js";

const FOLD_S = 10; // duration of a blob of audio, which the browser may write to disk
const PART_S = 30; // duration of a part
const WAV_HZ = 48_000; // sample rate of WAV files made from other formats
const MAX_KEPT_S = 2 * 3600; // 0.7 GB at 48 kHz
const MAX_DECODED_S = 20 * 60; // maximum duration of a decoded file, which needs 0.4 MB per second

/** The sound of a live take: 16-bit mono PCM. */
export class LiveRecording {
  #blobs = [];
  #fresh = []; // ArrayBuffers that are not yet in a blob
  #freshSamples = 0;
  #samples = 0;

  constructor(rate) {
    this.rate = rate;
  }

  /** Create a recording from blobs of PCM. */
  static of(rate, blobs) {
    const recording = new LiveRecording(rate);
    recording.#blobs = blobs;
    recording.#samples = blobs.reduce((bytes, { size }) => bytes + size, 0) / 2;
    return recording;
  }

  /** The blobs, which do not change. */
  parts() {
    this.#fold();
    return [...this.#blobs];
  }

  get seconds() {
    return this.#samples / this.rate;
  }

  /** Add a chunk. Return false if the recording already has its maximum length. */
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
    // If `from` is the end, a rounding error may yield the sample before it.
    if (last <= first || last / this.rate <= from) return null;
    const pcm = await this.wav().slice(44 + 2 * first, 44 + 2 * last).arrayBuffer();
    const view = new DataView(pcm);
    const buffer = context.createBuffer(1, last - first, this.rate);
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    return { buffer, start: first / this.rate, end: last / this.rate };
  }
}

/** A recording that was dropped on the page. It is decoded when it is played for the first time. */
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

  /** `seconds`: duration, as far as it is known. Throws an Error if the file cannot be played. */
  async part(context, from, seconds) {
    if (seconds > MAX_DECODED_S) {
      throw new Error(`Recordings longer than ${MAX_DECODED_S / 60} minutes play without their audio.`);
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

  /** The recording as a WAV file. WAV files are returned unchanged. Throws like `part`. */
  async wav(seconds) {
    if (/\.wav$/i.test(this.#file.name)) return this.#file;
    if (seconds > MAX_DECODED_S) {
      throw new Error(`WAV files can have at most ${MAX_DECODED_S / 60} minutes.`);
    }
    return wavOf(await this.#decode(new OfflineAudioContext(2, 1, WAV_HZ)));
  }

  /** Free the decoded audio. The file remains. */
  release() {
    this.#buffer = null;
  }
}
