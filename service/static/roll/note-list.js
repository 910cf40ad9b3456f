/** The notes as a table, for reading with a screen reader or by eye; filled while it is open. */

import { clockText, noteName } from "../notes/pitch.js";
import { TakeView } from "./take-view.js";

const MAX_ROWS = 500; // the newest; the MIDI file has all
const UPDATE_MS = 300;

export class NoteList extends TakeView {
  #panel;
  #body;
  #filter;

  constructor(panel, body, filter) {
    super(() => this.#fill(), () => UPDATE_MS);
    this.#panel = panel;
    this.#body = body;
    this.#filter = filter;
    filter.addEventListener("change", this.soon);
    panel.addEventListener("toggle", this.soon);
  }

  #fill() {
    if (!this.#panel.open) return;
    const rows = this.#filter.notesOf(this.take).slice(-MAX_ROWS).map((note) => {
      const row = document.createElement("tr");
      const length = note.offset === null ? "sounding" : `${(note.offset - note.onset).toFixed(2)} s`;
      const { pitch, velocity, instrument } = note;
      for (const text of [noteName(pitch), clockText(note.onset), length, velocity, instrument]) {
        row.insertCell().textContent = text;
      }
      return row;
    });
    this.#body.replaceChildren(...rows);
  }
}
