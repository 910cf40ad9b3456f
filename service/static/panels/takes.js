/**
 * The list of takes. The user can choose a take to see and play it, rename it, transcribe its audio
 * again, delete it, or drag it out of the page as MIDI. Events: `add`, `choose`, `again` and `delete`.
 */

import { clockText, countText } from "../notes/pitch.js";
import { dragOut } from "../notes/saving.js";
import { $ } from "../page.js";

const QUESTION = (take) => `Delete “${take.name}”? ${take.saved ? "Its sound" : "It"} was not downloaded.`;

export class TakeList extends EventTarget {
  #panel;
  #list;
  #filter;
  #items = new Map(); // take -> list item

  constructor(panel, list, filter) {
    super();
    this.#panel = panel;
    this.#list = list;
    this.#filter = filter;
    addEventListener("beforeunload", (event) => {
      if (this.all.some((take) => !take.saved && !take.kept)) event.preventDefault();
    });
  }

  /** Oldest first. */
  get all() {
    return [...this.#items.keys()];
  }

  add(take) {
    const item = $("take-row").content.firstElementChild.cloneNode(true);
    const find = (name) => item.querySelector(`.${name}`);
    const emit = (type) => this.dispatchEvent(new CustomEvent(type, { detail: take }));
    const act = (name, does) => find(name).addEventListener("click", does);
    act("take-choose", () => emit("choose"));
    act("rename", () => rename(take, item));
    act("again", () => emit("again"));
    act("delete", () => {
      const losesSound = take.recording?.rate && !take.soundSaved; // a live take
      if ((!take.saved || losesSound) && !confirm(QUESTION(take))) return;
      item.remove();
      this.#items.delete(take);
      this.#panel.hidden = this.#items.size === 0;
      emit("delete");
    });
    dragOut(item, () => take, this.#filter);
    const show = () => {
      const count = countText(take.notes.length, "note");
      const about = `${count} · ${clockText(take.duration).slice(0, -2)}`;
      find("take-name").textContent = take.name;
      find("take-about").textContent = `${about} · ${dateText(take.created)}`;
      for (const name of ["rename", "again", "delete"]) {
        find(name).ariaLabel = `${find(name).textContent.trim()}: ${take.name}`;
      }
    };
    find("again").disabled = !take.recording;
    for (const type of ["about", "change", "finish"]) take.addEventListener(type, show);
    show();
    this.#items.set(take, item);
    this.#list.prepend(item);
    this.#panel.hidden = false;
    this.dispatchEvent(new CustomEvent("add", { detail: take }));
  }

  mark(chosen) {
    for (const [take, item] of this.#items) {
      item.classList.toggle("chosen", take === chosen);
      item.querySelector(".take-choose").ariaCurrent = take === chosen ? "true" : null;
    }
  }
}

/** The time of a take from today, or the date of an older take. */
function dateText(created) {
  const date = new Date(created);
  const today = date.toDateString() === new Date().toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

/** Replace the name by a text field. Enter or leaving the field changes the name. Escape does not. */
function rename(take, item) {
  const choose = item.querySelector(".take-choose");
  const field = document.createElement("input");
  field.ariaLabel = "Name of the take";
  field.value = take.name;
  let ended = false; // removing the field removes its focus, which would end editing again
  const end = (name) => {
    if (ended) return;
    ended = true;
    const focused = document.activeElement === field;
    field.replaceWith(choose);
    take.rename(name.trim() || take.name);
    if (focused) choose.focus();
  };
  field.addEventListener("blur", () => end(field.value));
  field.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") end(field.value);
    if (key === "Escape") end(take.name);
  });
  choose.replaceWith(field);
  field.select();
}
