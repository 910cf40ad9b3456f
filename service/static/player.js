/**
 * Plays a take's notes with WebAudio. Notes are given to the audio clock a moment ahead, so a
 * busy page does not shake the rhythm. Emits `play`, `pause` and `position`.
 */

import { room, strike } from "./voice.js";

const TICK_MS = 60;
const AHEAD_S = 0.25; // must outlast a slow tick
const FADE_S = 0.03;

export class Player extends EventTarget {
  #context = null;
  #output = null;
  #bus = null; // one gain a run, so that pausing silences what is already scheduled
  #take = null;
  #timer = 0;
  #next = 0; // index of the first note not yet scheduled
  #origin = 0; // context time at which the take's second 0 would have sounded
  #position = 0;

  get playing() {
    return this.#timer !== 0;
  }

  get position() {
    if (!this.playing) return this.#position;
    const heard = this.#context.currentTime - this.#origin;
    return Math.max(0, Math.min(this.#take.duration, heard));
  }

  load(take) {
    this.pause();
    this.#take = take;
    this.#position = 0;
  }

  async play() {
    if (!this.#take || this.playing) return;
    this.#context ??= this.#build();
    await this.#context.resume();
    if (this.#position >= this.#take.duration - 0.05) this.#position = 0;
    this.#bus = this.#context.createGain();
    this.#bus.connect(this.#output);
    this.#origin = this.#context.currentTime + 0.08 - this.#position;
    this.#next = this.#take.firstAtOrAfter(this.#position);
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#tick();
    this.dispatchEvent(new Event("play"));
  }

  pause() {
    if (!this.playing) return;
    this.#position = this.position;
    clearInterval(this.#timer);
    this.#timer = 0;
    const bus = this.#bus;
    bus.gain.setTargetAtTime(0, this.#context.currentTime, FADE_S / 3);
    setTimeout(() => bus.disconnect(), FADE_S * 4000);
    this.dispatchEvent(new Event("pause"));
  }

  async seek(seconds) {
    const resume = this.playing;
    this.pause();
    this.#position = Math.max(0, Math.min(this.#take?.duration ?? 0, seconds));
    if (resume) await this.play();
  }

  #tick() {
    const { notes, duration } = this.#take;
    const until = this.#context.currentTime - this.#origin + AHEAD_S;
    for (; this.#next < notes.length && notes[this.#next].onset < until; this.#next += 1) {
      const note = notes[this.#next];
      const when = Math.max(this.#context.currentTime, this.#origin + note.onset);
      strike(this.#context, this.#bus, note, when, this.#origin + note.offset);
    }
    if (this.position >= duration) {
      this.pause();
      this.#position = duration;
      this.dispatchEvent(new Event("pause"));
    }
  }

  #build() {
    const context = new AudioContext();
    const limiter = context.createDynamicsCompressor();
    limiter.threshold.value = -12;
    limiter.ratio.value = 6;
    this.#output = context.createGain();
    const wet = context.createGain();
    wet.gain.value = 0.07;
    this.#output.connect(limiter);
    this.#output.connect(room(context)).connect(wet).connect(limiter);
    limiter.connect(context.destination);
    return context;
  }
}
