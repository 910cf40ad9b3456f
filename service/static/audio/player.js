/**
 * Plays a take: its notes on a synthesiser together with its recording, on the same audio clock.
 *
 * Sound is scheduled in advance, so a busy page does not disturb the rhythm. Events: `play`, `pause`,
 * `trouble` (a text, if the recording cannot be played), `note` {note, inSeconds} for each scheduled
 * note, and `pedal` {down, inSeconds} for each movement of the sustain pedal.
 *
 * A `passage` {start, end} in seconds is played in a loop.
 */

import { clickAt } from "../practise/metronome.js";
import { store } from "../state/store.js";
import { setAudioSession } from "./session.js";
import { after, cancel } from "./timers.js";
import { room, strike } from "./voice.js";

const TICK_S = 0.06;
const AHEAD_S = 0.25; // time in advance at which notes are scheduled; longer than a slow tick
const PART_AHEAD_S = 5; // time in advance at which the next part of the recording is read
const START_S = 0.08; // from the press of the button to the first sample
const FADE_S = 0.03;
const MAX_DRIFT_S = 0.08; // maximum error of the position of a slowed recording
const NO_SLOW_SOUND = "The browser cannot slow this recording down; its notes play alone.";

export class Player extends EventTarget {
  #filter;
  #context = null;
  #mix = null; // {notes, recording}: gain nodes of all runs
  #run = null; // {notes, recording}: gain nodes of one run, so that a pause silences scheduled notes
  #balance = 0.5;
  #take = null;
  #timer = 0;
  #next = 0; // index of the first note not yet scheduled
  #moves = []; // pedal movements that are not yet reported: {down, time}
  #origin = 0; // context time of the start of the take
  #position = 0;
  #passage = null;
  #speed = 1;
  #nextBeat = 0; // index of the first beat whose click is not yet scheduled

  constructor(filter) {
    super();
    this.#filter = filter;
    store.subscribe(["speed"], () => {
      const { position, playing } = this;
      this.#speed = store.get("speed");
      if (playing) this.seek(position);
    });
  }

  get playing() {
    return this.#timer !== 0;
  }

  get position() {
    if (!this.playing) return this.#position;
    const elapsed = (this.#context.currentTime - this.#origin) * this.#speed;
    return Math.min(this.#take.duration, Math.max(this.#position, elapsed)); // constant during a count-in
  }

  /** 0: only the recording; 1: only the notes; between: both; 0.5: both at full level. */
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

  /** `countsIn`: start with a bar of clicks, if the user has chosen it and the take has beats. */
  async play({ countsIn = false } = {}) {
    if (!this.#take || this.#run) return;
    setAudioSession("playback");
    this.#context ??= this.#build();
    const run = { notes: this.#context.createGain(), recording: this.#context.createGain() };
    this.#run = run;
    run.notes.connect(this.#mix.notes);
    run.recording.connect(this.#mix.recording);
    this.#applyBalance();
    await this.#context.resume();
    if (!this.#canPlayFrom(this.#position)) this.#position = this.#passage?.start ?? 0;
    const part = await this.#part(this.#position); // read first, so that both start together
    if (run !== this.#run) return; // paused while it was read
    const lead = countsIn && store.get("countIn") ? this.#countIn() : 0;
    this.#origin = this.#context.currentTime + START_S + lead - this.#position / this.#speed;
    const { notes, beats } = this.#take;
    this.#next = notes.filter(({ onset }) => onset < this.#position).length;
    this.#nextBeat = beats.filter(({ time_s }) => time_s < this.#position - 0.01).length;
    this.#moves = this.#take.pedal
      .filter(({ offset }) => offset > this.#position) // press a pedal again that is down here
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

  /** Play one note immediately, in addition to the take. */
  audition(note) {
    setAudioSession("playback");
    this.#context ??= this.#build();
    this.#context.resume();
    const now = this.#context.currentTime + 0.01;
    strike(this.#context, this.#mix.notes, note, now, now + Math.min(0.6, note.offset - note.onset));
  }

  /** Use changed notes and beats of the take, except those that are already scheduled. */
  refresh() {
    if (!this.playing) return;
    const scheduled = (this.#context.currentTime - this.#origin) * this.#speed + AHEAD_S;
    const until = Math.max(this.#position, scheduled); // a count-in precedes the position
    this.#next = this.#take.notes.filter(({ onset }) => onset < until).length;
    this.#nextBeat = this.#take.beats.filter(({ time_s }) => time_s < until).length;
    this.#applyBalance(); // a transposition silences the recording
  }

  async seek(seconds) {
    const resume = this.#run !== null;
    this.pause();
    this.#position = Math.max(0, Math.min(this.#take?.duration ?? 0, seconds));
    if (resume) await this.play();
  }

  /** Schedule a bar of clicks. Return the time in seconds until the take starts. */
  #countIn() {
    const { beats } = this.#take;
    const at = beats.findIndex(({ time_s }) => time_s >= this.#position - 0.01);
    const [first, next] = at < 0 || at + 1 === beats.length ? beats.slice(-2) : beats.slice(at, at + 2);
    if (!next) return 0;
    const period = (next.time_s - first.time_s) / this.#speed;
    const start = this.#context.currentTime + START_S;
    for (let beat = 0; beat < first.beats_per_bar; beat += 1) {
      clickAt(this.#context, this.#run.notes, start + beat * period, beat === 0);
    }
    const upbeat = Math.max(0, first.time_s - this.#position) / this.#speed;
    return Math.max(0, first.beats_per_bar * period - upbeat);
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
    const until = Math.min(end, (now - this.#origin) * this.#speed + AHEAD_S);
    const timeOf = (seconds) => this.#origin + seconds / this.#speed;
    const beats = this.#take.beats;
    for (; beats[this.#nextBeat]?.time_s < until; this.#nextBeat += 1) {
      const { time_s, place } = beats[this.#nextBeat];
      if (!store.get("metronome")) continue;
      clickAt(this.#context, this.#run.notes, Math.max(now, timeOf(time_s)), place === 0);
    }
    while (this.#moves[0]?.time < until) {
      const { down, time } = this.#moves.shift();
      const inSeconds = Math.max(0, timeOf(time) - now);
      this.dispatchEvent(new CustomEvent("pedal", { detail: { down, inSeconds } }));
    }
    for (; this.#next < notes.length && notes[this.#next].onset < until; this.#next += 1) {
      const note = notes[this.#next];
      if (!this.#filter.passes(note, duration)) continue;
      const when = Math.max(now, timeOf(note.onset));
      strike(this.#context, this.#run.notes, note, when, timeOf(note.offset));
      const played = { ...note, onset: timeOf(note.onset), offset: timeOf(note.offset) };
      this.dispatchEvent(new CustomEvent("note", { detail: { note: played, inSeconds: when - now } }));
    }
    if (this.position < end) return;
    if (this.#passage) this.seek(this.#passage.start);
    else this.pause();
  }

  /** The part of the recording at `from` seconds; null if there is none. */
  async #part(from) {
    const { recording, duration } = this.#take;
    try {
      return (await recording?.part(this.#context, from, duration)) ?? null;
    } catch (error) {
      this.dispatchEvent(new CustomEvent("trouble", { detail: error.message }));
      return null;
    }
  }

  /** Play the recording at another speed with the browser's player, which preserves the pitch. */
  async #playSlowly(run, from) {
    const audio = new Audio(URL.createObjectURL(this.#take.recording.file(this.#take.name)));
    const stop = () => {
      audio.pause();
      URL.revokeObjectURL(audio.src);
      audio.removeAttribute("src"); // frees its decoder
      audio.load();
    };
    audio.preservesPitch = true;
    audio.playbackRate = this.#speed;
    this.#context.createMediaElementSource(audio).connect(run.recording);
    audio.currentTime = from;
    try {
      while (run === this.#run && this.#context.currentTime < this.#origin + from / this.#speed) {
        await new Promise((go) => after(0.01, go));
      }
      if (run === this.#run) await audio.play();
      while (run === this.#run && !audio.ended) {
        const late = this.position - audio.currentTime;
        if (Math.abs(late) > MAX_DRIFT_S) audio.currentTime = this.position;
        await new Promise((go) => after(1, go));
      }
    } catch {
      if (run === this.#run) this.dispatchEvent(new CustomEvent("trouble", { detail: NO_SLOW_SOUND }));
    }
    stop();
  }

  async #playRecording(run, part, from) {
    if (part && this.#speed !== 1) return this.#playSlowly(run, from);
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
    const audible = !this.#take?.transposed; // the recording cannot be transposed
    this.#mix.notes.gain.value = audible ? Math.min(1, 2 * this.#balance) : 1;
    this.#mix.recording.gain.value = audible ? Math.min(1, 2 * (1 - this.#balance)) : 0;
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
