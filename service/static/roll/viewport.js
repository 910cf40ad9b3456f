/**
 * The part of a take that the roll shows, in seconds and pitches. Changes are animated, except for users
 * who prefer reduced motion.
 */

import { pitchRange } from "../notes/pitch.js";

const FIRST_LOW = 40; // E2
const FIRST_HIGH = 84; // C6
const MARGIN_PITCHES = 3;
const MIN_SPAN_S = 1;
const MIN_ROWS = 8;
const MAX_PITCH = 127;
const EASE_PER_S = 9; // 90 % of a change is complete after 250 ms

const lessMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class Viewport {
  constructor() {
    this.reset();
  }

  reset() {
    this.now = { start: 0, span: 10, low: FIRST_LOW, high: FIRST_HIGH };
    this.goal = { ...this.now };
    this.pitchesChosen = false; // true if the user chose the range of pitches
  }

  /** Extend the view to include a pitch. A live view never shrinks, so that it moves rarely. */
  include(pitch) {
    if (this.pitchesChosen) return;
    this.goal.low = Math.max(0, Math.min(this.goal.low, pitch - MARGIN_PITCHES));
    this.goal.high = Math.min(MAX_PITCH, Math.max(this.goal.high, pitch + MARGIN_PITCHES));
  }

  fitPitches(notes) {
    this.pitchesChosen = false;
    if (notes.length === 0) return;
    const { low, high } = pitchRange(notes);
    const slack = Math.max(MARGIN_PITCHES, Math.ceil((36 - (high - low)) / 2)); // at least three octaves
    this.goal.low = Math.max(0, low - slack);
    this.goal.high = Math.min(MAX_PITCH, high + slack);
  }

  /** Show a number of rows from `low` up, shifted if necessary to stay within the MIDI pitches. */
  showPitches(low, rows = this.rows, glide = true) {
    rows = Math.max(MIN_ROWS, Math.min(MAX_PITCH + 1, rows));
    this.goal.low = Math.max(0, Math.min(MAX_PITCH + 1 - rows, low));
    this.goal.high = this.goal.low + rows - 1;
    this.pitchesChosen = true;
    if (!glide) Object.assign(this.now, { low: this.goal.low, high: this.goal.high });
  }

  zoomPitches(pitch, factor) {
    const rows = Math.max(MIN_ROWS, Math.min(MAX_PITCH + 1, this.rows * factor));
    this.showPitches(pitch - ((pitch - this.goal.low) / this.rows) * rows, rows);
  }

  get rows() {
    return this.goal.high - this.goal.low + 1;
  }

  /** Show [start, start + span]. `glide`: false if the target itself moves. */
  show(start, span = this.goal.span, glide = true) {
    this.goal.start = start;
    this.goal.span = Math.max(MIN_SPAN_S, span);
    if (!glide) {
      this.now.start = start;
      this.now.span = this.goal.span;
    }
  }

  zoomAround(time, factor, longest) {
    const span = Math.max(MIN_SPAN_S, Math.min(longest, this.goal.span * factor));
    const share = (time - this.goal.start) / this.goal.span;
    this.show(time - share * span, span);
  }

  /** Move towards the target. Return true until it is reached. */
  ease(seconds) {
    const step = lessMotion.matches ? 1 : 1 - Math.exp(-EASE_PER_S * seconds);
    let moving = false;
    for (const key of ["start", "span", "low", "high"]) {
      const way = this.goal[key] - this.now[key];
      const near = Math.abs(way) < this.now.span / 4000;
      this.now[key] = near ? this.goal[key] : this.now[key] + way * step;
      moving ||= !near;
    }
    return moving;
  }
}
