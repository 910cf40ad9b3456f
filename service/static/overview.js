/** The whole take in a thin strip under the roll; the seek slider lies on top of it. */

import { opacity, Palette } from "./palette.js";

const LIVE_WAIT_MS = 250;
const NOTES_PER_MS = 20;

export class Overview {
  #canvas;
  #context;
  #palette = new Palette();
  #take = null;
  #pending = false;
  #redraw = () => this.#soon();

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    new ResizeObserver(this.#redraw).observe(canvas);
    Palette.onChange(() => {
      this.#palette = new Palette();
      this.#soon();
    });
  }

  show(take) {
    this.#take?.removeEventListener("change", this.#redraw);
    this.#take = take;
    take.addEventListener("change", this.#redraw);
    this.#soon();
  }

  #soon() {
    if (this.#pending) return;
    this.#pending = true;
    // Every note is drawn, so a live take redraws this strip seldom, a long one seldomer.
    const wait = this.#take?.live ? LIVE_WAIT_MS + this.#take.notes.length / NOTES_PER_MS : 0;
    setTimeout(() => {
      this.#pending = false;
      this.#draw();
    }, wait);
  }

  #draw() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!this.#take || width === 0) return;
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    const context = this.#context;
    context.scale(ratio, ratio);
    const { notes, duration } = this.#take;
    if (notes.length === 0) return;
    let low = 127;
    let high = 0;
    for (const { pitch } of notes) {
      low = Math.min(low, pitch);
      high = Math.max(high, pitch);
    }
    const row = (height - 8) / Math.max(13, high - low + 1);
    for (const { pitch, velocity, confidence, onset, offset } of notes) {
      const from = (onset / duration) * width;
      const until = ((offset ?? duration) / duration) * width;
      context.globalAlpha = opacity(confidence);
      context.fillStyle = this.#palette.velocity(velocity);
      const y = 4 + (high - pitch) * row;
      context.fillRect(from, y, Math.max(1, until - from), Math.max(1.2, row));
    }
  }
}
