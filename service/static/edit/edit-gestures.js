/**
 * Editing by mouse and touch on the roll. A click selects a note. A drag moves a note or one of its
 * ends. A drag over an empty area selects the notes in it. A double-click adds a note. A click on a
 * key of the keyboard selects its pitch. Bar lines can be dragged on the ruler. Alt ignores the grid.
 */

import { RULER_HEIGHT } from "../roll/painter.js";
import { store } from "../state/store.js";
import { dragged, nearest, onGrid } from "./beats.js";
import { changeBeats, move, stretch } from "./commands.js";

const EDGE_PIXELS = 8; // width of the areas at both ends of a note that stretch it
const TOUCH_PIXELS = 14; // distance by which a finger may miss a note
const DRAG_PIXELS = 4;
const BAR_PIXELS = 7; // maximum distance of a click from a bar line

export class EditGestures {
  #canvas;
  #editor;
  #roll;
  #drag = null;
  #tapped = null; // where a finger touched no note; a tap there deselects
  #passing = false; // true while an event is passed to the roll

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
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", () => this.#up());
    on("dblclick", (event) => this.#add(event));
  }

  /** The note under a point, and the part of the note: "onset", "offset" or "all". */
  #hit(at, touch) {
    let note = null;
    let distance = touch ? TOUCH_PIXELS : 0;
    for (const candidate of this.#editor.notes) {
      const { onset, offset, pitch } = candidate;
      const aside = Math.max(0, onset - at.time, at.time - offset) / at.secondsPerPixel;
      const above = Math.max(0, pitch - at.pitch, at.pitch - pitch - 1) / at.pitchesPerPixel;
      const apart = Math.max(aside, above);
      if (apart <= distance) [note, distance] = [candidate, apart];
    }
    if (!note) return null;
    const edge = Math.min(EDGE_PIXELS * at.secondsPerPixel, (note.offset - note.onset) / 4);
    const part = at.time > note.offset - edge ? "offset" : at.time < note.onset + edge ? "onset" : "all";
    return { note, part };
  }

  #down(event) {
    const touch = event.pointerType === "touch";
    if (event.button !== 0 || this.#passing) return false;
    if (this.#drag) return touch && this.#pinch();
    const at = this.#roll.pointAt(event);
    if (at.y < RULER_HEIGHT) return this.#grabBar(event, at);
    this.#canvas.focus();
    if (at.x < this.#roll.keysWidth) {
      this.#editor.selectWhere(({ pitch }) => pitch === Math.floor(at.pitch), event.shiftKey);
      return true;
    }
    const hit = this.#hit(at, touch);
    const more = event.shiftKey || store.get("several");
    this.#tapped = null;
    if (!hit && touch && !store.get("several")) {
      this.#tapped = at;
      return false; // one finger scrolls, two zoom
    }
    const selection = store.get("selection");
    if (hit && more) this.#editor.toggle(hit.note);
    else if (hit && !selection.has(hit.note)) this.#editor.select([hit.note]);
    else if (!hit && !more) this.#editor.select([]);
    if (hit) this.#editor.sound(hit.note);
    this.#canvas.setPointerCapture(event.pointerId);
    const before = [...store.get("selection")];
    this.#drag = { at, before, ...hit, moved: false, kind: hit ? "notes" : "marquee", more, event };
    return true;
  }

  /** Handle a second finger: end the drag of the first, and let both zoom the roll. */
  #pinch() {
    const { event, moved, kind } = this.#drag;
    if (moved && kind !== "marquee") this.#editor.undo();
    this.#drag = this.#roll.marquee = null;
    this.#passing = true;
    this.#canvas.dispatchEvent(new PointerEvent("pointerdown", event));
    this.#passing = false;
    return false;
  }

  #grabBar(event, at) {
    const { take } = this.#roll;
    if (take.beats.length < 2) return false;
    const index = nearest(take.beats, at.time);
    const apart = Math.abs(take.beats[index].time_s - at.time) / at.secondsPerPixel;
    if (take.beats[index].place || apart > BAR_PIXELS) return false;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#drag = { at, kind: "bar", index, beats: take.beats, moved: false, event };
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
    drag.moved = true;
    if (drag.kind === "marquee") this.#marquee(drag, at);
    else if (drag.kind === "bar") {
      const beats = dragged(drag.beats, drag.index, at.time);
      drag.ran = this.#editor.run(changeBeats("Bar line", drag.beats, beats), { again: drag.ran });
    } else this.#dragNotes(drag, at, event.altKey);
    return true;
  }

  #dragNotes(drag, at, free) {
    const { at: from, before, note, part, ran } = drag;
    const moving = part === "all" ? "onset" : part;
    const target = note[moving] + at.time - from.time;
    const snaps = store.get("snap") && !free;
    const seconds = (snaps ? onGrid(this.#roll.take.beats, target).time : target) - note[moving];
    const semitones = Math.floor(at.pitch) - note.pitch;
    // A vertical drag does not change the time.
    const still = Math.abs(at.x - from.x) < 2 * DRAG_PIXELS;
    const command =
      part === "all" ? move(before, still ? 0 : seconds, semitones) : stretch(before, part, seconds);
    const pitch = [...store.get("selection")][0]?.pitch;
    drag.ran = this.#editor.run(command, { again: ran, quiet: true });
    const moved = command.pairs.find(([was]) => was === note)?.[1];
    if (moved && moved.pitch !== pitch) this.#editor.sound(moved);
  }

  #marquee({ at: from, before, more }, at) {
    const [start, end] = [from.time, at.time].sort((a, b) => a - b);
    const [low, high] = [from.pitch, at.pitch].sort((a, b) => a - b).map(Math.floor);
    this.#roll.marquee = { start, end, low, high };
    const inside = [...this.#editor.notes].filter(
      ({ pitch, onset, offset }) => onset < end && offset > start && pitch >= low && pitch <= high,
    );
    this.#editor.select(more ? [...before, ...inside] : inside);
  }

  #up(event) {
    const tapped = event && this.#tapped;
    this.#tapped = null;
    if (tapped) {
      const { x, y } = this.#roll.pointAt(event);
      if (Math.hypot(x - tapped.x, y - tapped.y) <= DRAG_PIXELS) this.#editor.select([]);
    }
    if (!this.#drag) return false;
    const { at, kind, moved } = this.#drag;
    this.#drag = this.#roll.marquee = null;
    if (!moved && kind !== "notes") this.#roll.seek(at.time);
    return true;
  }

  #add(event) {
    const at = this.#roll.pointAt(event);
    if (at.y < RULER_HEIGHT || at.x < this.#roll.keysWidth || this.#hit(at, false)) return false;
    this.#editor.addAt(at.time, Math.floor(at.pitch), event.altKey);
    return true;
  }
}
