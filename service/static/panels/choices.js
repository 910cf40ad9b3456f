/** Options of the next take: fast or accurate notes, allowed instruments, pitch bends. */

import { labelOf } from "../notes/instruments.js";
import { $ } from "../page.js";
import { authorization } from "../service/access.js";

const LOOKAHEAD_MS = 200; // look-ahead of accurate notes, and maximum delay of fast notes
const HINTS = {
  fast: "Each note as soon as it is certain, for playing along.",
  accurate: "A moment later, with fewer wrong notes.",
};

export class RequestOptions {
  #buttons = new Map(); // instrument -> button

  constructor() {
    $("pace").addEventListener("change", () => this.#show());
    this.#show();
    fetchInstruments().then(
      (names) => this.offer(names),
      () => {}, // Listen will report that the server cannot be reached
    );
  }

  get fast() {
    return $("pace-fast").checked;
  }

  set fast(value) {
    $(value ? "pace-fast" : "pace-accurate").checked = true;
    this.#show();
  }

  /** Names of the allowed instruments; empty if all are allowed. */
  get instruments() {
    const chosen = [...this.#buttons].filter(([, button]) => button.ariaPressed === "true");
    return chosen.map(([name]) => name);
  }

  /** Options of any take. */
  get options() {
    return { instruments: this.instruments, bends: $("bends").checked };
  }

  /** Options of a live take. */
  get liveOptions() {
    return { mode: this.fast && "anytime", lookaheadMs: LOOKAHEAD_MS, ...this.options };
  }

  set enabled(value) {
    $("pace").disabled = $("bends").disabled = !value;
    for (const button of this.#buttons.values()) button.disabled = !value;
  }

  /** Show the instruments that the server's weights distinguish. Existing buttons do not change. */
  offer(names) {
    for (const name of names) if (!this.#buttons.has(name)) this.#add(name);
  }

  #add(name) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = labelOf(name);
    button.ariaPressed = "false";
    button.disabled = $("pace").disabled;
    button.addEventListener("click", () => {
      button.ariaPressed = String(button.ariaPressed !== "true");
      this.#show();
    });
    this.#buttons.set(name, button);
    $("players-list").append(button);
    $("players").hidden = false;
    this.#show();
  }

  #show() {
    $("pace-hint").textContent = HINTS[this.fast ? "fast" : "accurate"];
    $("players-chosen").textContent = this.instruments.map(labelOf).join(", ") || "all";
  }
}

/** Return the instruments of the server; none if it requires a key first. */
async function fetchInstruments() {
  const response = await fetch(new URL("info", document.baseURI), { headers: authorization() });
  if (!response.ok) return [];
  return (await response.json()).instruments;
}
