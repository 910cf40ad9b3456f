/**
 * The notes as a table, also for screen readers. It is filled while it is open. In the editor each note
 * is a button that selects it, and the keyboard shortcuts of the roll edit it.
 */

import { labelOf } from "../notes/instruments.js";
import { clockText, noteName } from "../notes/pitch.js";
import { store } from "../state/store.js";
import { TakeView } from "./take-view.js";

const MAX_ROWS = 500; // notes around the selection, or the newest notes
const UPDATE_MS = 300;

export class NoteList extends TakeView {
  #panel;
  #body;
  #filter;
  #notes = []; // notes of the rows

  constructor(panel, body, filter) {
    super(() => this.#fill(), () => UPDATE_MS);
    this.#panel = panel;
    this.#body = body;
    this.#filter = filter;
    filter.addEventListener("change", this.soon);
    panel.addEventListener("toggle", this.soon);
    store.subscribe(["naming"], this.soon);
    store.subscribe(["editing", "selection"], () => {
      const [selected] = store.get("selection");
      if (selected && !this.#notes.includes(selected)) this.soon();
      else this.#mark();
    });
    body.addEventListener("click", ({ target, shiftKey }) => {
      const note = this.#notes[target.closest("button")?.closest("tr").sectionRowIndex];
      if (!note) return;
      const kept = shiftKey ? store.get("selection") : [];
      store.set({ selection: new Set([...kept, note]) });
    });
  }

  #fill() {
    if (!this.#panel.open) return;
    const focused = this.#body.contains(document.activeElement);
    const at = document.activeElement.closest?.("tr")?.sectionRowIndex ?? 0;
    const all = this.#filter.notesOf(this.take);
    const selected = all.findIndex((note) => store.get("selection").has(note));
    const newest = Math.max(0, all.length - MAX_ROWS);
    const first = selected < 0 ? newest : Math.max(0, Math.min(selected - MAX_ROWS / 2, newest));
    this.#notes = all.slice(first, first + MAX_ROWS);
    const rows = this.#notes.map((note) => {
      const row = document.createElement("tr");
      const length = note.offset === null ? "sounding" : `${(note.offset - note.onset).toFixed(2)} s`;
      const { pitch, velocity, instrument } = note;
      for (const text of [noteName(pitch), clockText(note.onset), length, velocity, labelOf(instrument)]) {
        row.insertCell().textContent = text;
      }
      return row;
    });
    this.#body.replaceChildren(...rows);
    this.#mark();
    const near = this.#body.rows[Math.min(at, rows.length - 1)]?.querySelector("button");
    if (focused) (this.#body.querySelector("[aria-pressed=true]") ?? near)?.focus();
  }

  /** Show buttons while the take is edited. The buttons of selected notes are pressed. */
  #mark() {
    const editing = store.get("editing");
    for (const [at, row] of [...this.#body.rows].entries()) {
      const [cell] = row.cells;
      let button = cell.querySelector("button");
      if (!editing) {
        if (button) cell.textContent = button.textContent;
        continue;
      }
      if (!button) {
        button = Object.assign(document.createElement("button"), { type: "button" });
        button.textContent = cell.textContent;
        cell.replaceChildren(button);
      }
      button.setAttribute("aria-pressed", String(store.get("selection").has(this.#notes[at])));
    }
  }
}
