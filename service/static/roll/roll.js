/**
 * The piano roll: time runs to the right, pitch upwards, keyboard at the left.
 *
 * Velocity is a note's colour and confidence its opacity. While a take is live the newest
 * moment stays near the right edge; a finished take can be dragged, zoomed and scrubbed. Frames
 * are drawn only while something moves. Emits `seek` with the time that was pointed at.
 */

import { Painter } from "./painter.js";
import { Palette } from "./palette.js";
import { countText, noteName } from "../notes/pitch.js";
import { Viewport } from "./viewport.js";

const HEAD_SHARE = 0.94; // where the newest moment stands while live
const EDGE_SHARE = 0.01; // room before the take's first moment and after its last
const FARTHEST_S = 600; // that one can zoom out, or to the whole of a longer take
const CURSOR_SHARE = 0.35; // where the cursor stands while playing
const DRAG_PIXELS = 4; // less is a click

export class Roll extends EventTarget {
  #canvas;
  #painter;
  #view = new Viewport();
  #filter;
  #take = null;
  #frame = 0;
  #lastTime = 0;
  #headAt = null; // () => seconds, while the take is live
  #cursorAt = null; // () => seconds, while playing
  #cursor = 0;
  #heat = false;
  #onChange = () => this.#changed();
  #onFinish = () => this.fit();

  constructor(canvas, filter) {
    super();
    this.#canvas = canvas;
    this.#filter = filter;
    filter.addEventListener("change", () => this.#take && this.#changed());
    this.#painter = new Painter(canvas);
    new ResizeObserver(() => this.#resize()).observe(canvas);
    Palette.onChange(() => {
      this.#painter.palette = new Palette();
      this.redraw();
    });
    this.#listen();
  }

  show(take) {
    this.#take?.removeEventListener("change", this.#onChange);
    this.#take?.removeEventListener("finish", this.#onFinish);
    this.#take = take;
    take.addEventListener("change", this.#onChange);
    take.addEventListener("finish", this.#onFinish);
    this.#cursor = 0;
    this.#cursorAt = null;
    this.#headAt = null;
    this.#view.reset();
    if (!take.live) this.fit();
    this.#changed();
  }

  /** Follow a live take: `headAt` gives the time at the head of the roll in seconds. */
  follow(headAt, span = 10) {
    this.#headAt = headAt;
    if (headAt) this.#track(span);
    this.redraw();
  }

  /** Follow playback, or `null` to leave the cursor where it is. */
  play(cursorAt) {
    this.#cursorAt = cursorAt;
    this.redraw();
  }

  setCursor(seconds) {
    this.#cursor = seconds;
    const { start, span } = this.#view.goal;
    if (seconds < start || seconds > start + span) this.#pan(seconds - span * CURSOR_SHARE);
    this.redraw();
  }

  /** Show the frames' probabilities behind the notes, where the take has them. */
  set heat(shown) {
    this.#heat = shown;
    this.redraw();
  }

  fit() {
    this.#headAt = null;
    this.#view.fitPitches(this.#filter.notesOf(this.#take));
    const span = this.#whole;
    this.#view.show(-span * EDGE_SHARE, span);
    this.redraw();
  }

  /** Seconds across that show all of the take. */
  get #whole() {
    return Math.max(2, this.#take.duration) * (1 + 2 * EDGE_SHARE);
  }

  zoom(factor, time = this.#anchor()) {
    this.#view.zoomAround(time, factor, Math.max(FARTHEST_S, this.#whole));
    if (!this.#headAt) this.#pan(this.#view.goal.start);
    this.redraw();
  }

  redraw() {
    if (this.#frame) return;
    this.#lastTime = performance.now();
    this.#frame = requestAnimationFrame((now) => this.#tick(now));
  }

  /** The head runs through an empty roll first, then the roll runs under it. */
  #track(span) {
    this.#view.show(Math.max(-span * EDGE_SHARE, this.#headAt() - span * HEAD_SHARE), span, false);
  }

  #anchor() {
    if (this.#headAt) return this.#headAt();
    const { start, span } = this.#view.goal;
    const visible = this.#cursor >= start && this.#cursor <= start + span;
    return visible ? this.#cursor : start + span / 2;
  }

  #pan(start) {
    const { span } = this.#view.goal;
    const earliest = -span * EDGE_SHARE;
    const latest = Math.max(earliest, this.#take.duration + span * EDGE_SHARE - span);
    this.#view.show(Math.max(earliest, Math.min(start, latest)));
  }

  #changed() {
    const { notes, open } = this.#take;
    const count = this.#filter.count(this.#take);
    this.#canvas.dataset.noteCount = count;
    this.#canvas.dataset.openCount = open.size;
    // The latest note is not always the last: one that took longer to decide may begin before.
    const sounding = [...open.values(), ...notes.slice(-1)];
    if (this.#take.live) for (const { pitch } of sounding) this.#view.include(pitch);
    this.#canvas.setAttribute("aria-label", `Piano roll, ${countText(count, "note")}`);
    this.redraw();
  }

  #resize() {
    this.#painter.resize();
    this.redraw();
  }

  #tick(now) {
    this.#frame = 0;
    const seconds = Math.min(0.1, Math.max(0, (now - this.#lastTime) / 1000));
    this.#lastTime = now;
    if (!this.#take) return;
    if (this.#headAt) {
      this.#track(this.#view.goal.span);
    } else if (this.#cursorAt) {
      this.#cursor = this.#cursorAt();
      this.#pan(this.#cursor - this.#view.goal.span * CURSOR_SHARE);
    }
    const moving = this.#view.ease(seconds);
    this.#draw();
    if (moving || this.#headAt || this.#cursorAt) {
      this.#frame = requestAnimationFrame((next) => this.#tick(next));
    }
  }

  #draw() {
    const { sounding, drawn } = this.#painter.paint({
      take: this.#take,
      view: this.#view.now,
      head: this.#headAt ? this.#headAt() : null,
      cursor: this.#cursor,
      filter: this.#filter,
      heat: this.#heat,
    });
    // The attributes are for assistive technology and tests; a write of the same costs a frame.
    const names = [...sounding.keys()].map(noteName).join(" ");
    if (names !== this.#canvas.dataset.sounding) this.#canvas.dataset.sounding = names;
    if (`${drawn}` !== this.#canvas.dataset.drawnCount) this.#canvas.dataset.drawnCount = drawn;
  }

  #timeAt(event) {
    const box = this.#canvas.getBoundingClientRect();
    const keys = this.#painter.keysWidth;
    const share = (event.clientX - box.left - keys) / (box.width - keys);
    return this.#view.now.start + share * this.#view.now.span;
  }

  #listen() {
    const canvas = this.#canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.#take || this.#take.live) return;
      drag = { x: event.clientX, start: this.#view.goal.start, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const pixels = event.clientX - drag.x;
      drag.moved ||= Math.abs(pixels) > DRAG_PIXELS;
      if (!drag.moved || this.#cursorAt) return;
      canvas.classList.add("dragging");
      const seconds = (pixels / (canvas.clientWidth - this.#painter.keysWidth)) * this.#view.goal.span;
      this.#pan(drag.start - seconds);
      this.#view.now.start = this.#view.goal.start; // the hand moves it; no easing on top
      this.redraw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.#seek(this.#timeAt(event));
      drag = null;
      canvas.classList.remove("dragging");
    });
    canvas.addEventListener("pointercancel", () => {
      drag = null;
      canvas.classList.remove("dragging");
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!this.#take || this.#take.live) return;
        const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.zoom(Math.exp(event.deltaY * 0.004), this.#timeAt(event));
        } else if (sideways || event.shiftKey) {
          event.preventDefault();
          const pixels = sideways ? event.deltaX : event.deltaY;
          const { start, span } = this.#view.goal;
          this.#pan(start + (pixels / canvas.clientWidth) * span);
          this.redraw();
        }
      },
      { passive: false },
    );
  }

  #seek(seconds) {
    const time = Math.max(0, Math.min(this.#take.duration, seconds));
    this.dispatchEvent(new CustomEvent("seek", { detail: time }));
  }
}
