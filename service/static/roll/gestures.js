/**
 * Gestures on the roll. Drags and the wheel scroll in both directions. Ctrl with the wheel zooms time,
 * or, over the keys or with Alt, pitch. Two fingers zoom both. A click seeks. A drag on the ruler
 * marks a passage.
 */

import { RULER_HEIGHT } from "./painter.js";

const DRAG_PIXELS = 4; // shorter movements are clicks
const UPRIGHT_PIXELS = 16; // vertical distance from which a drag also scrolls pitches
const ZOOM_PER_PIXEL = 0.004; // change of the zoom per pixel of the wheel
const FINGERS_APART = 40; // distance of two fingers, in pixels, from which they zoom an axis

export class Gestures {
  #canvas;
  #roll;
  #pointers = new Map(); // id -> {x, y}
  #drag = null; // {x, y, time, pitch, view} at the start, and the kind of drag

  constructor(canvas, roll) {
    this.#canvas = canvas;
    this.#roll = roll;
    const on = (type, act) => canvas.addEventListener(type, act, { passive: false });
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", (event) => this.#leave(event));
    on("wheel", (event) => this.#wheel(event));
    // Two fingers zoom the roll. One finger that moves vertically scrolls the page, or the pitches.
    on("touchmove", (event) => event.cancelable && event.touches.length > 1 && event.preventDefault());
  }

  get #width() {
    return this.#canvas.clientWidth - this.#roll.keysWidth;
  }

  get #height() {
    return this.#canvas.clientHeight - RULER_HEIGHT;
  }

  #down(event) {
    if (event.button !== 0 || !this.#roll.take) return;
    this.#canvas.setPointerCapture(event.pointerId);
    const at = this.#roll.pointAt(event);
    this.#pointers.set(event.pointerId, at);
    const view = { ...this.#roll.view };
    this.#drag = { ...at, view, moved: this.#pointers.size > 1, ruler: at.y < RULER_HEIGHT };
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const at = this.#roll.pointAt(event, this.#drag.view);
    if (this.#pointers.size === 1) {
      const { x, y } = this.#drag;
      this.#drag.moved ||= Math.hypot(at.x - x, at.y - y) > DRAG_PIXELS;
      if (this.#drag.moved) this.#dragTo(at, event.pointerType);
    } else if (this.#pointers.size === 2) {
      const other = [...this.#pointers].find(([id]) => id !== event.pointerId)[1];
      this.#pinch(other, before, at);
    }
    this.#pointers.set(event.pointerId, at);
  }

  #dragTo(at, pointerType) {
    const { ruler, time, pitch, view } = this.#drag;
    if (ruler) {
      if (this.#roll.take.live) return;
      const [start, end] = [time, at.time].sort((a, b) => a - b);
      this.#emit("passage", { start, end });
      return;
    }
    this.#canvas.classList.add("dragging");
    this.#roll.scroll(view.start + time - at.time, false);
    const pageScrolls = pointerType === "touch" && !this.#roll.pitchesChosen;
    this.#drag.upright ||= !pageScrolls && Math.abs(at.y - this.#drag.y) > UPRIGHT_PIXELS;
    if (this.#drag.upright) this.#roll.scrollPitches(view.low + pitch - at.pitch, false);
  }

  /** Handle the movement of one of two fingers from `before` to `at`. */
  #pinch(other, before, at) {
    const factor = (axis) => {
      const [was, is] = [before, at].map((point) => Math.abs(point[axis] - other[axis]));
      return Math.min(was, is) < FINGERS_APART ? 1 : was / is;
    };
    const middle = { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 };
    const { time, pitch } = this.#roll.pointAt(this.#inPage(middle));
    if (factor("x") !== 1) this.#roll.zoom(factor("x"), time);
    if (factor("y") !== 1) this.#roll.zoomPitches(factor("y"), pitch);
  }

  #inPage({ x, y }) {
    const box = this.#canvas.getBoundingClientRect();
    return { clientX: x + box.left, clientY: y + box.top };
  }

  #up(event) {
    const drag = this.#drag;
    if (drag && !drag.moved) {
      if (drag.ruler) this.#emit("passage", null);
      this.#roll.seek(drag.time);
    }
    this.#leave(event);
  }

  #leave({ pointerId }) {
    this.#pointers.delete(pointerId);
    this.#canvas.classList.remove("dragging");
    this.#drag = null;
    for (const [id, { x, y }] of this.#pointers) {
      const at = this.#roll.pointAt(this.#inPage({ x, y })); // the remaining finger starts a drag here
      this.#pointers.set(id, at);
      this.#drag = { ...at, view: { ...this.#roll.view }, moved: true, ruler: false };
    }
  }

  #wheel(event) {
    const roll = this.#roll;
    if (!roll.take) return;
    const { x, time, pitch } = this.#roll.pointAt(event);
    const { start, span, low, high } = roll.view;
    const overKeys = x < this.#roll.keysWidth;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.ctrlKey || event.metaKey || event.altKey) {
      const factor = Math.exp(event.deltaY * ZOOM_PER_PIXEL);
      if (overKeys || event.altKey) roll.zoomPitches(factor, pitch);
      else roll.zoom(factor, time);
    } else if (sideways) {
      roll.scroll(start + ((event.deltaX || event.deltaY) / this.#width) * span);
    } else {
      const pitches = (event.deltaY / this.#height) * (high - low + 1);
      roll.scrollPitches(low - pitches);
      if (roll.view.low === low) return; // no more pitches: let the page scroll
    }
    event.preventDefault();
  }

  #emit(type, detail) {
    this.#roll.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
