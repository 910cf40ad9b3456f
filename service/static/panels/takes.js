/** The list of takes: choose one to see and hear it. Emits `choose` with the take. */

import { clockText, countText } from "../notes/pitch.js";

export class TakeList extends EventTarget {
  #panel;
  #list;
  #buttons = new Map(); // take -> button

  constructor(panel, list) {
    super();
    this.#panel = panel;
    this.#list = list;
  }

  /** Oldest first. */
  get all() {
    return [...this.#buttons.keys()];
  }

  add(take) {
    const button = document.createElement("button");
    button.type = "button";
    const name = document.createElement("span");
    name.className = "take-name";
    name.textContent = take.name;
    const about = document.createElement("span");
    about.className = "take-about";
    button.append(name, about);
    button.addEventListener("click", () =>
      this.dispatchEvent(new CustomEvent("choose", { detail: take })),
    );
    const item = document.createElement("li");
    item.append(button);
    this.#list.prepend(item);
    this.#panel.hidden = false;
    this.#buttons.set(take, button);
    const update = () => {
      const count = countText(take.notes.length, "note");
      about.textContent = take.live ? "…" : `${count} · ${clockText(take.duration).slice(0, -2)}`;
    };
    take.addEventListener("finish", update);
    update();
  }

  mark(chosen) {
    for (const [take, button] of this.#buttons) {
      if (take === chosen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }
}
