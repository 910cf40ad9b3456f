/**
 * Paints the roll: grid, notes, cursor and keyboard. It has no state except the canvas. All that is
 * shown comes from the arguments.
 */

import { barBefore } from "../edit/beats.js";
import { clockText, isBlackKey, noteName } from "../notes/pitch.js";
import { drawChords } from "./chords.js";
import { drawKeyboard, soundingAt } from "./keyboard.js";
import { Palette } from "./palette.js";

export const RULER_HEIGHT = 36; // times above, bars below
const TIMES_Y = 10;
const BARS_Y = 25;
const BAR_NUMBER_PIXELS = 26; // minimum distance between two bar numbers
const KEYS_WIDTH = 64;
const NARROW_KEYS_WIDTH = 44;
const NARROW = 520; // width of the roll, in pixels, below which the keys are shorter
const GRID_STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
const GRID_MIN_PIXELS = 64;
const BEAT_MIN_PIXELS = 8;
const NAME_MIN_ROW = 7; // minimum height of a note, in pixels, for its name
const NAME_MIN_WIDTH = 24;
const PEDAL_HEIGHT = 4; // pixels
const FAINT = 0.75; // opacity below which a note's name has the page's text colour
const BAND_OPACITY = 0.14; // opacity of the band from a highlighted key to its note
const SHADE_OPACITY = 0.1; // opacity of the shade outside a loop
const PLAIN_WIDTH = 4; // width, in pixels, up to which rounded corners are not visible

export class Painter {
  #canvas;
  #context;
  #scale = 0; // screen pixels per CSS pixel of the canvas
  palette = new Palette();

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
  }

  get keysWidth() {
    return this.#canvas.clientWidth < NARROW ? NARROW_KEYS_WIDTH : KEYS_WIDTH;
  }

  /** Adapt the canvas to the screen's pixels. It is blank until it is painted again. */
  resize() {
    const { clientWidth, clientHeight } = this.#canvas;
    this.#scale = devicePixelRatio;
    this.#canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.#canvas.height = Math.round(clientHeight * devicePixelRatio);
  }

  /**
   * `view`: {start, span} in seconds and {low, high} in pitches. `head`: the newest moment of a live
   * take, or null. `cursor`: position of playback. `passage`: looped {start, end}, or null. `filter`:
   * the note filter. Returns `sounding`, a map of highlighted pitches to colours, and `drawn`, the
   * number of notes.
   */
  paint({ take, view, head, cursor, passage, filter, selection, marquee }) {
    if (this.#scale !== devicePixelRatio) this.resize(); // the window was moved to another screen
    const width = this.#canvas.width / devicePixelRatio;
    const height = this.#canvas.height / devicePixelRatio;
    const sounding = soundingAt(take, head, cursor, filter, this.palette);
    if (width === 0) return { sounding, drawn: 0 };
    const { start, span } = view;
    const keys = this.keysWidth;
    const rowHeight = (height - RULER_HEIGHT) / (view.high - view.low + 1);
    const layout = {
      width,
      height,
      keys,
      start,
      end: start + span,
      low: Math.max(0, Math.floor(view.low)),
      high: Math.min(127, Math.ceil(view.high)),
      x: (time) => keys + ((time - start) / span) * (width - keys),
      rows: { height: rowHeight, top: (p) => RULER_HEIGHT + (view.high - p) * rowHeight },
    };
    const { palette } = this;
    this.#context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    this.#rows(layout, sounding);
    if (passage) this.#passage(layout, passage);
    this.#seconds(layout);
    if (take.beats.length) this.#beats(layout, take);
    const drawn = this.#notes(layout, take, head, filter, selection);
    if (marquee) this.#marquee(layout, marquee);
    drawChords(this.#context, { ...layout, top: RULER_HEIGHT }, take, palette);
    this.#pedal(layout, take, head);
    if (head !== null) this.#line(layout, head, { opacity: 0.45, width: 1 });
    else if (take.notes.length) this.#line(layout, cursor, { opacity: 1, width: 2, flag: true });
    const box = { width: keys, top: RULER_HEIGHT, height: height - RULER_HEIGHT };
    drawKeyboard(this.#context, { ...layout, ...box, sounding, palette });
    return { sounding, drawn };
  }

  #rows({ width, height, keys, low, high, rows }, sounding) {
    const { palette } = this;
    const context = this.#context;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    for (let pitch = low; pitch <= high; pitch += 1) {
      const y = rows.top(pitch);
      if (isBlackKey(pitch)) {
        context.fillStyle = palette.shade;
        context.fillRect(keys, y, width - keys, rows.height);
      }
      if (sounding.has(pitch)) {
        context.globalAlpha = BAND_OPACITY;
        context.fillStyle = sounding.get(pitch);
        context.fillRect(keys, y, width - keys, rows.height);
        context.globalAlpha = 1;
      }
      if (pitch % 12 === 0) {
        context.fillStyle = palette.octave;
        context.fillRect(keys, Math.round(y + rows.height), width - keys, 1);
      }
    }
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, RULER_HEIGHT); // hides the row at the top edge
  }

  /** Draw lines at the beats, stronger at the start of bars. Draw none if they would be too dense. */
  #beats({ height, start, end, x }, { beats, notes }) {
    const context = this.#context;
    context.fillStyle = this.palette.strong;
    const crowded = beats.length > 1 && x(beats[1].time_s) - x(beats[0].time_s) < BEAT_MIN_PIXELS;
    context.font = `600 11px ${this.palette.font}`;
    let bar = barBefore(beats, notes[0]?.onset ?? 0);
    let free = -Infinity; // leftmost position of the next number
    for (const { time_s: time, place } of beats) {
      if (!place) bar += 1;
      if (time < start || time > end || (crowded && place)) continue;
      if (!place && bar > 0 && x(time) >= free) {
        context.globalAlpha = 1;
        context.fillText(`${bar}`, x(time) + 3, BARS_Y);
        context.fillRect(Math.round(x(time)), RULER_HEIGHT - 16, 1, 16);
        free = x(time) + BAR_NUMBER_PIXELS;
      }
      context.globalAlpha = place ? 0.12 : 0.35;
      context.fillRect(Math.round(x(time)), RULER_HEIGHT, 1, height - RULER_HEIGHT);
    }
    context.globalAlpha = 1;
  }

  #seconds({ width, height, keys, start, end, x }) {
    const { palette } = this;
    const context = this.#context;
    const minStep = ((end - start) / (width - keys)) * GRID_MIN_PIXELS;
    const step = GRID_STEPS_S.find((seconds) => seconds >= minStep) ?? GRID_STEPS_S.at(-1);
    context.font = `11px ${palette.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (let mark = Math.max(0, Math.ceil(start / step)); mark * step < end; mark += 1) {
      const at = Math.round(x(mark * step));
      context.fillStyle = palette.line;
      context.fillRect(at, RULER_HEIGHT, 1, height - RULER_HEIGHT);
      const text = step < 1 ? clockText(mark * step) : clockText(mark * step).slice(0, -2);
      if (at + context.measureText(text).width > width) continue;
      context.fillStyle = palette.text;
      context.fillText(text, at + 1, TIMES_Y);
    }
  }

  /** Mark the looped passage and shade everything else. */
  #passage({ width, height, keys, x }, { start, end }) {
    const context = this.#context;
    const [left, right] = [start, end].map((time) => Math.max(keys, Math.min(width, x(time))));
    context.fillStyle = this.palette.cursor;
    context.fillRect(left, RULER_HEIGHT - 4, right - left, 4);
    context.globalAlpha = SHADE_OPACITY;
    context.fillStyle = this.palette.strong;
    context.fillRect(keys, 0, left - keys, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
  }

  #clip({ width, height, keys }) {
    this.#context.beginPath();
    this.#context.rect(keys, RULER_HEIGHT, width - keys, height - RULER_HEIGHT);
    this.#context.clip();
  }

  #notes(layout, take, head, filter, selection) {
    const { start, end, x, rows } = layout;
    const { palette } = this;
    const context = this.#context;
    const barHeight = Math.max(2, rows.height - 1);
    const radius = Math.min(3, barHeight / 3);
    const named = rows.height >= NAME_MIN_ROW;
    context.save();
    this.#clip(layout);
    context.font = `600 ${Math.max(9, Math.min(11, rows.height - 2))}px ${palette.font}`;
    context.textBaseline = "middle";
    const now = take.stalled ? take.head : Math.max(take.head, head ?? 0);
    let drawn = 0;
    for (const note of take.between(start, end)) {
      if (!filter.passes(note, now)) continue;
      drawn += 1;
      const until = note.offset ?? now;
      const left = x(note.onset);
      const barWidth = Math.max(2, x(until) - left - 1);
      const y = rows.top(note.pitch) + 0.5;
      const { colour, opacity } = palette.note(note);
      context.globalAlpha = opacity;
      context.fillStyle = colour;
      if (selection.has(note)) {
        context.globalAlpha = 1;
        context.strokeStyle = palette.strong;
        context.lineWidth = 2.5;
        context.strokeRect(left - 1.5, y - 1.5, barWidth + 3, barHeight + 3);
      }
      if (barWidth <= PLAIN_WIDTH) {
        context.fillRect(left, y, barWidth, barHeight);
        continue;
      }
      context.beginPath();
      context.roundRect(left, y, barWidth, barHeight, radius);
      context.fill();
      if (note.bends) this.#bends(layout, note, until);
      if (named && barWidth >= NAME_MIN_WIDTH) {
        // On a faint note the page's text colour has more contrast.
        context.fillStyle = context.globalAlpha < FAINT ? palette.strong : palette.onNote;
        context.globalAlpha = 1;
        context.fillText(noteName(note.pitch), left + 4, y + barHeight / 2 + 0.5);
      }
    }
    context.restore();
    return drawn;
  }

  #marquee({ x, rows }, { start, end, low, high }) {
    const context = this.#context;
    context.strokeStyle = context.fillStyle = this.palette.cursor;
    const box = [x(start), rows.top(high), x(end) - x(start), (high - low + 1) * rows.height];
    context.globalAlpha = 0.12;
    context.fillRect(...box);
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.strokeRect(...box);
  }

  /** Draw the pitch bends of a note, if the server sent any. */
  #bends({ x, rows }, { pitch, bends }, until) {
    const context = this.#context;
    context.globalAlpha = 1;
    context.strokeStyle = this.palette.strong;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const [time, cents] of bends) {
      if (time <= until) context.lineTo(x(time), rows.top(pitch + cents / 100) + rows.height / 2);
    }
    context.stroke();
  }

  /** Draw the sustain pedal as a line at the bottom of the roll where it is down. */
  #pedal(layout, take, head) {
    if (!take.pedal.length) return;
    const { height, start, end, x } = layout;
    const context = this.#context;
    context.save();
    this.#clip(layout);
    context.fillStyle = this.palette.strong;
    for (const { onset, offset } of take.pedal) {
      const until = offset ?? Math.max(take.head, head ?? 0);
      if (until < start || onset > end) continue;
      const left = x(onset);
      context.fillRect(left, height - PEDAL_HEIGHT, Math.max(2, x(until) - left), PEDAL_HEIGHT);
      context.fillRect(left, height - 2 * PEDAL_HEIGHT, 1, PEDAL_HEIGHT); // start of the press
    }
    context.restore();
  }

  /** Draw a vertical line at a moment, with a flag on the ruler if it can be moved. */
  #line({ height, keys, width, x }, time, { opacity: strength, width: thickness, flag = false }) {
    const at = Math.round(x(time));
    if (at < keys || at > width) return;
    const context = this.#context;
    context.fillStyle = this.palette.cursor;
    context.globalAlpha = strength;
    context.fillRect(at, RULER_HEIGHT, thickness, height - RULER_HEIGHT);
    if (flag) {
      context.beginPath();
      context.moveTo(at - 5, RULER_HEIGHT - 6);
      context.lineTo(at + 7, RULER_HEIGHT - 6);
      context.lineTo(at + 1, RULER_HEIGHT + 2);
      context.fill();
    }
    context.globalAlpha = 1;
  }
}
