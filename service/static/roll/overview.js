/** The complete take in a thin strip under the roll, below the seek slider. */

import { pitchRange } from "../notes/pitch.js";
import { Palette } from "./palette.js";
import { TakeView } from "./take-view.js";

const LIVE_WAIT_MS = 250;

export class Overview extends TakeView {
  #canvas;
  #context;
  #palette = new Palette();
  #filter;

  constructor(canvas, filter) {
    super(() => this.#draw(), () => (this.take?.live ? LIVE_WAIT_MS : 0));
    this.#canvas = canvas;
    this.#filter = filter;
    filter.addEventListener("change", this.soon);
    this.#context = canvas.getContext("2d");
    new ResizeObserver(this.soon).observe(canvas);
    Palette.onChange(() => {
      this.#palette = new Palette();
      this.soon();
    });
  }

  #draw() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (width === 0) return;
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    const context = this.#context;
    context.scale(ratio, ratio);
    const { notes, duration, head } = this.take;
    if (notes.length === 0) return;
    const { low, high } = pitchRange(notes);
    const row = (height - 8) / Math.max(13, high - low + 1);
    for (const note of notes) {
      if (!this.#filter.passes(note, head)) continue;
      const { pitch, onset, offset } = note;
      const from = (onset / duration) * width;
      const until = ((offset ?? duration) / duration) * width;
      const { colour, opacity } = this.#palette.note(note);
      context.globalAlpha = opacity;
      context.fillStyle = colour;
      const y = 4 + (high - pitch) * row;
      context.fillRect(from, y, Math.max(1, until - from), Math.max(1.2, row));
    }
  }
}
