/**
 * Editing by mouse and touch on the roll: a click selects a note, a drag moves it or one of its ends,
 * a drag over empty ground selects what it covers, a double-click adds a note, a click on a key of the
 * keyboard selects its pitch. Along the times above, a bar line is dragged. The Alt key leaves the grid.
 */

import { RULER_HEIGHT } from "../roll/painter.js";
import { store } from "../state/store.js";
import { dragged, nearest, onGrid } from "./beats.js";
import { changeBeats, move, stretch } from "./commands.js";

const EDGE_PIXELS = 8; // at either end of a note that stretch it
const TOUCH_PIXELS = 10; // by which a finger may miss a note
const DRAG_PIXELS = 4;
const BAR_PIXELS = 7; // from a bar line

export class EditGestures {
  #canvas;
  #editor;
  #roll;
  #drag = null;

  constructor(canvas, editor, roll) {
    this.#canvas = canvas;
    this.#editor = editor;
    this.#roll = roll;
    const on = (type, act) =>
      canvas.addEventListener(
        type,
        (event) => {
          if (store.get("editing") && act(event)) {
            event.stopImmediatePropagation();
            event.preventDefault();
          }
        },
        { capture: true },
      );
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", () => this.#up());
    on("pointercancel", () => this.#up());
    on("dblclick", (event) => this.#add(event));
  }

  /** The note under a point, and which part of it. */
  #hit(at, touch) {
    const slack = touch ? TOUCH_PIXELS * at.secondsPerPixel : 0;
    const notes = [...this.#editor.notes].filter(
      ({ pitch, onset, offset }) =>
        pitch === Math.floor(at.pitch) && at.time >= onset - slack && at.time <= offset + slack,
    );
    const note = notes.at(-1);
    if (!note) return null;
    const edge = Math.min(EDGE_PIXELS * at.secondsPerPixel, (note.offset - note.onset) / 4);
    const part = at.time > note.offset - edge ? "offset" : at.time < note.onset + edge ? "onset" : "all";
    return { note, part };
  }

  #down(event) {
    if (event.button !== 0 || this.#drag) return false;
    const at = this.#roll.pointAt(event);
    const touch = event.pointerType === "touch";
    if (at.y < RULER_HEIGHT) return this.#grabBar(event, at);
    this.#canvas.focus();
    if (at.x < this.#roll.keysWidth) {
      this.#editor.selectWhere(({ pitch }) => pitch === Math.floor(at.pitch), event.shiftKey);
      return true;
    }
    const hit = this.#hit(at, touch);
    if (!hit && touch) return false; // one finger scrolls, two zoom
    const selection = store.get("selection");
    if (hit && event.shiftKey) this.#editor.toggle(hit.note);
    else if (hit && !selection.has(hit.note)) this.#editor.select([hit.note]);
    else if (!hit && !event.shiftKey) this.#editor.select([]);
    if (hit) this.#editor.sound(hit.note);
    this.#canvas.setPointerCapture(event.pointerId);
    const before = [...store.get("selection")];
    this.#drag = { at, before, ...hit, moved: false, kind: hit ? "notes" : "marquee" };
    return true;
  }

  #grabBar(event, at) {
    const { take } = this.#roll;
    if (take.beats.length < 2) return false;
    const index = nearest(take.beats, at.time);
    const apart = Math.abs(take.beats[index].time_s - at.time) / at.secondsPerPixel;
    if (take.beats[index].place || apart > BAR_PIXELS) return false;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#drag = { at, kind: "bar", index, beats: take.beats, moved: false };
    return true;
  }

  #move(event) {
    const at = this.#roll.pointAt(event);
    const drag = this.#drag;
    if (!drag) {
      const hit = at.y > RULER_HEIGHT && at.x > this.#roll.keysWidth && this.#hit(at, false);
      this.#canvas.style.cursor = hit ? (hit.part === "all" ? "move" : "ew-resize") : "";
      return false;
    }
    const far = Math.hypot(at.x - drag.at.x, at.y - drag.at.y) > DRAG_PIXELS;
    if (!drag.moved && !far) return true;
    const again = drag.moved;
    drag.moved = true;
    if (drag.kind === "marquee") this.#marquee(drag, at, event.shiftKey);
    else if (drag.kind === "bar") {
      const beats = dragged(drag.beats, drag.index, at.time);
      this.#editor.run(changeBeats("Bar line", drag.beats, beats), { again });
    } else this.#dragNotes(drag, at, event.altKey, again);
    return true;
  }

  #dragNotes({ at: from, before, note, part }, at, free, again) {
    const moving = part === "all" ? "onset" : part;
    const wanted = note[moving] + at.time - from.time;
    const snaps = store.get("snap") && !free;
    const seconds = (snaps ? onGrid(this.#roll.take.beats, wanted).time : wanted) - note[moving];
    const semitones = Math.floor(at.pitch) - note.pitch;
    // A drag straight up or down keeps its time.
    const still = Math.abs(at.x - from.x) < 2 * DRAG_PIXELS;
    const command =
      part === "all" ? move(before, still ? 0 : seconds, semitones) : stretch(before, part, seconds);
    const pitch = [...store.get("selection")][0]?.pitch;
    this.#editor.run(command, { again, quiet: true });
    const moved = command.pairs.find(([was]) => was === note)?.[1];
    if (moved && moved.pitch !== pitch) this.#editor.sound(moved);
  }

  #marquee({ at: from, before }, at, more) {
    const [start, end] = [from.time, at.time].sort((a, b) => a - b);
    const [low, high] = [from.pitch, at.pitch].sort((a, b) => a - b).map(Math.floor);
    this.#roll.marquee = { start, end, low, high };
    const inside = [...this.#editor.notes].filter(
      ({ pitch, onset, offset }) => onset < end && offset > start && pitch >= low && pitch <= high,
    );
    this.#editor.select(more ? [...before, ...inside] : inside);
  }

  #up() {
    if (!this.#drag) return false;
    this.#drag = null;
    this.#roll.marquee = null;
    return true;
  }

  #add(event) {
    const at = this.#roll.pointAt(event);
    if (at.y < RULER_HEIGHT || at.x < this.#roll.keysWidth || this.#hit(at, false)) return false;
    this.#editor.addAt(at.time, Math.floor(at.pitch), event.altKey);
    return true;
  }
}
