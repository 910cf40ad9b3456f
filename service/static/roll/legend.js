/**
 * The instruments of the take in view, in the order of their programs, with colour, name, number of
 * notes, and buttons for mute and solo. Hidden if the take has no instruments.
 */

import { colourOf, countInstruments, labelOf } from "../notes/instruments.js";
import { $ } from "../page.js";
import { store } from "../state/store.js";
import { TakeView } from "./take-view.js";

const UPDATE_MS = 300;

export class Legend extends TakeView {
  #list;
  #filter;
  #rows = new Map(); // instrument -> {item, all, program, count, mute, solo}

  constructor(list, filter) {
    super(() => this.#fill(), () => UPDATE_MS);
    this.#list = list;
    this.#filter = filter;
    filter.addEventListener("change", () => this.#press());
    store.subscribe(["editing"], () => this.#press());
  }

  show(take) {
    if (take !== this.take) this.#filter.allowAll();
    super.show(take);
    this.#rows.clear();
    this.#list.replaceChildren();
    this.#fill();
  }

  #fill() {
    const { notes, programs } = this.take;
    const counts = countInstruments(notes, programs);
    for (const name of counts.keys()) {
      if (!this.#rows.has(name)) this.#add(name, programs[name] ?? 128);
    }
    for (const [name, { item, count }] of this.#rows) {
      const number = counts.get(name) ?? 0;
      item.hidden = number === 0; // all of its notes were reassigned to other instruments
      count.textContent = number;
    }
    this.#list.hidden = counts.size === 0;
    // If colours show the instrument, opacity shows the loudness.
    document.body.classList.toggle("by-instrument", counts.size > 0);
    this.#press();
  }

  #add(name, program) {
    const item = $("instrument-row").content.firstElementChild.cloneNode(true);
    item.querySelector(".swatch").style.background = colourOf(name, "var(--instrument-lightness)");
    const all = item.querySelector(".instrument-name");
    all.textContent = labelOf(name);
    all.addEventListener("click", () => {
      const own = this.#filter.notesOf(this.take).filter(({ instrument }) => instrument === name);
      if (store.get("editing")) store.set({ selection: new Set(own) });
    });
    const button = (kind, action, act) => {
      const found = item.querySelector(`.${kind}`);
      found.setAttribute("aria-label", `${action} ${labelOf(name)}`);
      found.addEventListener("click", act);
      return found;
    };
    const row = {
      item,
      all,
      program,
      count: item.querySelector(".instrument-count"),
      mute: button("mute", "Mute", () => this.#filter.mute(name)),
      solo: button("solo", "Solo", () => this.#filter.solo(name)),
    };
    const next = [...this.#rows.values()].filter((other) => other.program > program);
    next.sort((a, b) => a.program - b.program);
    this.#rows.set(name, row);
    // Insert each row only once: moving it would remove the focus from its buttons and cancel clicks.
    this.#list.insertBefore(item, next[0]?.item ?? null);
  }

  #press() {
    const editing = store.get("editing");
    for (const [name, { item, all, mute, solo }] of this.#rows) {
      all.disabled = !editing;
      all.title = editing ? `Select all notes of ${labelOf(name)}` : "";
      mute.setAttribute("aria-pressed", this.#filter.isMuted(name));
      solo.setAttribute("aria-pressed", this.#filter.isSolo(name));
      item.classList.toggle("excluded", !this.#filter.allows(name));
    }
  }
}
