/**
 * Plays a take: its notes on a synthesiser, its recording beside them, both on one audio clock.
 *
 * Sound is scheduled a moment ahead, so a busy page does not shake the rhythm. Events: `play`,
 * `pause`, `trouble` (words: the notes play alone), `note` {note, inSeconds} for each note that was
 * scheduled and `pedal` {down, inSeconds} for each move of the sustain pedal.
 *
 * With a `passage` {start, end} in seconds that alone is played, over and over.
 */

import { after, cancel } from "./timers.js";
import { room, strike } from "./voice.js";

const TICK_S = 0.06;
const AHEAD_S = 0.25; // must outlast a slow tick
const PART_AHEAD_S = 5; // the recording's next part is read that long before it is due
const START_S = 0.08; // from the press of the button to the first sample
const FADE_S = 0.03;

export class Player extends EventTarget {
  #filter;
  #context = null;
  #mix = null; // {notes, recording}: gain nodes that last
  #run = null; // {notes, recording}: gains of one run, so that pausing silences what is scheduled
  #balance = 0.5;
  #take = null;
  #timer = 0;
  #next = 0; // index of the first note not yet scheduled
  #moves = []; // of the pedal, not yet reported: {down, time}
  #origin = 0; // context time at which the take's second 0 would have sounded
  #position = 0;
  #passage = null;

  constructor(filter) {
    super();
    this.#filter = filter;
  }

  get playing() {
    return this.#timer !== 0;
  }

  get position() {
    if (!this.playing) return this.#position;
    const heard = this.#context.currentTime - this.#origin;
    return Math.max(0, Math.min(this.#take.duration, heard));
  }

  /** 0: the recording alone; 1: the notes alone; between: both, at half each in full. */
  set balance(value) {
    this.#balance = value;
    this.#applyBalance();
  }

  get passage() {
    return this.#passage;
  }

  set passage(passage) {
    this.#passage = passage;
    if (this.playing && !this.#canPlayFrom(this.position)) this.seek(this.position);
  }

  load(take) {
    this.pause();
    this.#passage = null;
    if (take !== this.#take) this.#take?.recording?.release?.();
    this.#take = take;
    this.#position = 0;
  }

  async play() {
    if (!this.#take || this.#run) return;
    this.#context ??= this.#build();
    const run = { notes: this.#context.createGain(), recording: this.#context.createGain() };
    this.#run = run;
    run.notes.connect(this.#mix.notes);
    run.recording.connect(this.#mix.recording);
    await this.#context.resume();
    if (!this.#canPlayFrom(this.#position)) this.#position = this.#passage?.start ?? 0;
    const part = await this.#part(this.#position); // first: both are to start together
    if (run !== this.#run) return; // paused meanwhile
    this.#origin = this.#context.currentTime + START_S - this.#position;
    const { notes } = this.#take;
    this.#next = notes.filter(({ onset }) => onset < this.#position).length;
    this.#moves = this.#take.pedal
      .filter(({ offset }) => offset > this.#position) // one that is down there is pressed again
      .flatMap(({ onset, offset }) => [{ down: true, time: onset }, { down: false, time: offset }]);
    this.#tick();
    this.#playRecording(run, part, this.#position);
    this.dispatchEvent(new Event("play"));
  }

  pause() {
    const run = this.#run;
    if (!run) return;
    const wasPlaying = this.playing;
    this.#position = this.position;
    cancel(this.#timer);
    this.#timer = 0;
    this.#run = null;
    for (const bus of Object.values(run)) {
      bus.gain.setTargetAtTime(0, this.#context.currentTime, FADE_S / 3);
      setTimeout(() => bus.disconnect(), FADE_S * 4000);
    }
    if (wasPlaying) this.dispatchEvent(new Event("pause"));
  }

  /** Sound one note at once, beside whatever plays. */
  audition(note) {
    this.#context ??= this.#build();
    this.#context.resume();
    const now = this.#context.currentTime + 0.01;
    strike(this.#context, this.#mix.notes, note, now, now + Math.min(0.6, note.offset - note.onset));
  }

  /** The take's notes have changed: what is not yet scheduled is played as it is now. */
  refresh() {
    if (!this.playing) return;
    const until = this.#context.currentTime - this.#origin + AHEAD_S;
    this.#next = this.#take.notes.filter(({ onset }) => onset < until).length;
  }

  async seek(seconds) {
    const resume = this.#run !== null;
    this.pause();
    this.#position = Math.max(0, Math.min(this.#take?.duration ?? 0, seconds));
    if (resume) await this.play();
  }

  #canPlayFrom(seconds) {
    const { start, end } = this.#passage ?? { start: 0, end: this.#take.duration };
    return seconds >= start && seconds < end - 0.05;
  }

  #tick() {
    this.#timer = after(TICK_S, () => this.#tick());
    const { notes, duration } = this.#take;
    const end = this.#passage?.end ?? duration;
    const now = this.#context.currentTime;
    const until = Math.min(end, now - this.#origin + AHEAD_S);
    while (this.#moves[0]?.time < until) {
      const { down, time } = this.#moves.shift();
      const inSeconds = Math.max(0, this.#origin + time - now);
      this.dispatchEvent(new CustomEvent("pedal", { detail: { down, inSeconds } }));
    }
    for (; this.#next < notes.length && notes[this.#next].onset < until; this.#next += 1) {
      const note = notes[this.#next];
      if (!this.#filter.passes(note, duration)) continue;
      const when = Math.max(now, this.#origin + note.onset);
      strike(this.#context, this.#run.notes, note, when, this.#origin + note.offset);
      this.dispatchEvent(new CustomEvent("note", { detail: { note, inSeconds: when - now } }));
    }
    if (this.position < end) return;
    if (this.#passage) {
      this.seek(this.#passage.start);
    } else {
      this.pause();
      this.#position = duration;
      this.dispatchEvent(new Event("pause"));
    }
  }

  /** The part of the recording at `from`; null if there is none (any more). */
  async #part(from) {
    const { recording, duration } = this.#take;
    try {
      return (await recording?.part(this.#context, from, duration)) ?? null;
    } catch (error) {
      this.dispatchEvent(new CustomEvent("trouble", { detail: error.message }));
      return null;
    }
  }

  async #playRecording(run, part, from) {
    while (part && run === this.#run) {
      const node = this.#context.createBufferSource();
      node.buffer = part.buffer;
      node.connect(run.recording);
      const late = Math.max(0, this.#context.currentTime - this.#origin - from);
      node.start(this.#origin + from + late, from + late - part.start);
      from = part.end;
      while (run === this.#run && this.position < from - PART_AHEAD_S) {
        await new Promise((go) => after(TICK_S, go));
      }
      part = run === this.#run ? await this.#part(from) : null;
    }
  }

  #applyBalance() {
    if (!this.#mix) return;
    this.#mix.notes.gain.value = Math.min(1, 2 * this.#balance);
    this.#mix.recording.gain.value = Math.min(1, 2 * (1 - this.#balance));
  }

  #build() {
    const context = new AudioContext();
    const limiter = context.createDynamicsCompressor();
    limiter.threshold.value = -12;
    limiter.ratio.value = 6;
    this.#mix = { notes: context.createGain(), recording: context.createGain() };
    this.#applyBalance();
    const wet = context.createGain();
    wet.gain.value = 0.07;
    this.#mix.notes.connect(limiter);
    this.#mix.notes.connect(room(context)).connect(wet).connect(limiter);
    this.#mix.recording.connect(limiter);
    limiter.connect(context.destination);
    return context;
  }
}
