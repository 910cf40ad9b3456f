/**
 * The piano roll: time runs to the right, pitch upwards, keyboard at the left.
 *
 * Velocity is a note's colour and confidence its opacity. While a take is live the newest
 * moment stays near the right edge; a finished take can be dragged, zoomed and scrubbed. Frames
 * are drawn only while something moves. Emits `seek` with the time that was pointed at.
 */

import { drawKeyboard } from "./keyboard.js";
import { opacity, Palette } from "./palette.js";
import { clockText, countText, isBlackKey, noteName } from "./pitch.js";
import { Viewport } from "./viewport.js";

const RULER_HEIGHT = 20;
const HEAD_SHARE = 0.94; // where the newest moment stands while live
const EDGE_SHARE = 0.01; // room before the take's first moment and after its last
const CURSOR_SHARE = 0.35; // where the cursor stands while playing
const DRAG_PIXELS = 4; // less is a click
const GRID_STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60];
const GRID_MIN_PIXELS = 64;
const NAME_MIN_ROW = 10;
const NAME_MIN_WIDTH = 24;
const FAINT = 0.75;

export class Roll extends EventTarget {
  #canvas;
  #context;
  #palette = new Palette();
  #view = new Viewport();
  #take = null;
  #frame = 0;
  #lastTime = 0;
  #headAt = null; // () => seconds, while the take is live
  #cursorAt = null; // () => seconds, while playing
  #cursor = 0;
  #onChange = () => this.#changed();
  #onFinish = () => this.fit();

  constructor(canvas) {
    super();
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    new ResizeObserver(() => this.#resize()).observe(canvas);
    Palette.onChange(() => {
      this.#palette = new Palette();
      this.redraw();
    });
    this.#listen();
  }

  get palette() {
    return this.#palette;
  }

  get view() {
    return this.#view;
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

  /** Follow a live take: `headAt` tells the moment at the head of the roll in seconds. */
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

  fit() {
    this.#headAt = null;
    this.#view.fitPitches(this.#take.notes);
    const seconds = Math.max(2, this.#take.duration);
    this.#view.show(-seconds * EDGE_SHARE, seconds * (1 + 2 * EDGE_SHARE));
    this.redraw();
  }

  zoom(factor, time = this.#anchor()) {
    this.#view.zoomAround(time, factor);
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
    this.#canvas.dataset.noteCount = notes.length;
    this.#canvas.dataset.openCount = open.size;
    const last = notes.at(-1);
    if (last && this.#take.live) this.#view.include(last.pitch);
    this.#canvas.setAttribute("aria-label", `Piano roll, ${countText(notes.length, "note")}`);
    this.redraw();
  }

  #resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.#canvas;
    this.#canvas.width = Math.round(clientWidth * ratio);
    this.#canvas.height = Math.round(clientHeight * ratio);
    this.#frame ||= requestAnimationFrame((now) => this.#tick(now));
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
    const ratio = devicePixelRatio || 1;
    const width = this.#canvas.width / ratio;
    const height = this.#canvas.height / ratio;
    if (width === 0) return;
    const { start, span, low: lowest, high: highest } = this.#view.now;
    const keys = this.#keysWidth();
    const rowHeight = (height - RULER_HEIGHT) / (highest - lowest + 1);
    const layout = {
      width,
      height,
      keys,
      start,
      end: start + span,
      low: Math.max(0, Math.floor(lowest)),
      high: Math.min(127, Math.ceil(highest)),
      x: (time) => keys + ((time - start) / span) * (width - keys),
      rows: { height: rowHeight, top: (p) => RULER_HEIGHT + (highest - p) * rowHeight },
      head: this.#headAt ? this.#headAt() : null,
    };
    const sounding = this.#sounding(layout);
    const context = this.#context;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#drawGrid(context, layout, sounding);
    this.#drawNotes(context, layout);
    this.#drawCursor(context, layout);
    drawKeyboard(context, {
      ...layout,
      width: keys,
      top: RULER_HEIGHT,
      height: height - RULER_HEIGHT,
      sounding,
      palette: this.#palette,
    });
    context.fillStyle = this.#palette.surface;
    context.fillRect(0, 0, keys, RULER_HEIGHT);
    this.#canvas.dataset.sounding = [...sounding.keys()].map(noteName).join(" ");
  }

  /** pitch -> velocity of the keys to light: open notes when live, else those at the cursor. */
  #sounding({ head }) {
    const lit = new Map();
    const notes =
      head === null
        ? this.#take.between(this.#cursor, this.#cursor + 1e-3)
        : this.#take.open.values();
    for (const { pitch, velocity } of notes) lit.set(pitch, velocity);
    return lit;
  }

  #drawGrid(context, { width, height, keys, start, end, low, high, x, rows }, sounding) {
    const palette = this.#palette;
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, width, height);
    for (let pitch = low; pitch <= high; pitch += 1) {
      const y = rows.top(pitch);
      if (isBlackKey(pitch)) {
        context.fillStyle = palette.shade;
        context.fillRect(keys, y, width - keys, rows.height);
      }
      if (sounding.has(pitch)) {
        context.globalAlpha = 0.14;
        context.fillStyle = palette.velocity(sounding.get(pitch));
        context.fillRect(keys, y, width - keys, rows.height);
        context.globalAlpha = 1;
      }
      if (pitch % 12 === 0) {
        context.fillStyle = palette.octave;
        context.fillRect(keys, Math.round(y + rows.height), width - keys, 1);
      }
    }
    const wanted = ((end - start) / (width - keys)) * GRID_MIN_PIXELS;
    const step = GRID_STEPS_S.find((seconds) => seconds >= wanted) ?? 120;
    context.font = `11px ${palette.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (let mark = Math.max(0, Math.ceil(start / step)); mark * step < end; mark += 1) {
      const at = Math.round(x(mark * step));
      context.fillStyle = palette.line;
      context.fillRect(at, RULER_HEIGHT, 1, height - RULER_HEIGHT);
      context.fillStyle = palette.text;
      const text = step < 1 ? clockText(mark * step) : clockText(mark * step).slice(0, -2);
      context.fillText(text, at + 1, RULER_HEIGHT / 2);
    }
  }

  #drawNotes(context, { width, height, keys, start, end, x, rows, head }) {
    const palette = this.#palette;
    const barHeight = Math.max(2, rows.height - 1);
    const radius = Math.min(3, barHeight / 3);
    const named = rows.height >= NAME_MIN_ROW;
    context.save();
    context.beginPath();
    context.rect(keys, RULER_HEIGHT, width - keys, height - RULER_HEIGHT);
    context.clip();
    context.font = `600 ${Math.min(11, rows.height - 2)}px ${palette.font}`;
    context.textBaseline = "middle";
    for (const note of this.#take.between(start, end)) {
      const until = note.offset ?? Math.max(this.#take.head, head ?? 0);
      const left = x(note.onset);
      const barWidth = Math.max(2, x(until) - left - 1);
      const y = rows.top(note.pitch) + 0.5;
      context.globalAlpha = opacity(note.confidence);
      context.fillStyle = palette.velocity(note.velocity);
      context.beginPath();
      context.roundRect(left, y, barWidth, barHeight, radius);
      context.fill();
      if (named && barWidth >= NAME_MIN_WIDTH) {
        // On a faint bar the page shines through: there the page's own ink reads better.
        context.fillStyle = context.globalAlpha < FAINT ? palette.strong : palette.onNote;
        context.globalAlpha = 1;
        context.fillText(noteName(note.pitch), left + 4, y + barHeight / 2 + 0.5);
      }
    }
    context.restore();
  }

  #drawCursor(context, { height, keys, width, x, head }) {
    const at = Math.round(x(head ?? this.#cursor));
    if (at < keys || at > width || this.#take.notes.length + (head ?? 0) === 0) return;
    context.fillStyle = this.#palette.cursor;
    context.globalAlpha = head === null ? 1 : 0.45;
    context.fillRect(at, RULER_HEIGHT, head === null ? 2 : 1, height - RULER_HEIGHT);
    if (head === null) {
      context.beginPath();
      context.moveTo(at - 5, RULER_HEIGHT - 6);
      context.lineTo(at + 7, RULER_HEIGHT - 6);
      context.lineTo(at + 1, RULER_HEIGHT + 2);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  #keysWidth() {
    return this.#canvas.clientWidth < 520 ? 44 : 64;
  }

  #timeAt(event) {
    const box = this.#canvas.getBoundingClientRect();
    const keys = this.#keysWidth();
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
      const seconds = (pixels / (canvas.clientWidth - this.#keysWidth())) * this.#view.goal.span;
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
