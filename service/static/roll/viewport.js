/**
 * What part of a take the roll shows: seconds across, pitches up. Changes are eased, so the
 * picture glides; people who ask for less motion get it at once.
 */

import { pitchRange } from "../notes/pitch.js";

const FIRST_LOW = 40; // E2
const FIRST_HIGH = 84; // C6: three and a half octaves, enough to start with
const MARGIN_PITCHES = 3;
const MIN_SPAN_S = 1;
const MIN_ROWS = 8;
const MAX_PITCH = 127;
const EASE_PER_S = 9; // a change is nine tenths done after a quarter of a second

const lessMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class Viewport {
  constructor() {
    this.reset();
  }

  reset() {
    this.now = { start: 0, span: 10, low: FIRST_LOW, high: FIRST_HIGH };
    this.goal = { ...this.now };
    this.pitchesChosen = false; // by hand
  }

  /** Make room for a pitch; a live view only ever grows, so that it stays calm. */
  include(pitch) {
    if (this.pitchesChosen) return;
    this.goal.low = Math.max(0, Math.min(this.goal.low, pitch - MARGIN_PITCHES));
    this.goal.high = Math.min(MAX_PITCH, Math.max(this.goal.high, pitch + MARGIN_PITCHES));
  }

  fitPitches(notes) {
    this.pitchesChosen = false;
    if (notes.length === 0) return;
    const { low, high } = pitchRange(notes);
    const slack = Math.max(MARGIN_PITCHES, Math.ceil((36 - (high - low)) / 2)); // three octaves
    this.goal.low = Math.max(0, low - slack);
    this.goal.high = Math.min(MAX_PITCH, high + slack);
  }

  /** Show this many rows from `low` up, or as near to it as there are pitches. */
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

  /** Show [start, start + span]; `glide` false for what already moves by itself. */
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

  /** Move towards the goal; true while there is still way to go. */
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
