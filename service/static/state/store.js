/**
 * The state that several views share: each sets what it changes and subscribes to what it shows, so
 * that no view calls another.
 */

export class Store {
  #state;
  #listeners = new Map(); // key -> Set of functions

  /** @param {Record<string, any>} initial */
  constructor(initial) {
    this.#state = { ...initial };
  }

  /** @param {string} key */
  get(key) {
    return this.#state[key];
  }

  /** Set some values; the subscribers of those that changed are called. */
  set(values) {
    const changed = Object.keys(values).filter((key) => this.#state[key] !== values[key]);
    Object.assign(this.#state, values);
    const listeners = new Set(changed.flatMap((key) => [...(this.#listeners.get(key) ?? [])]));
    for (const listener of listeners) listener();
  }

  /** Call `listener` now, and whenever one of these values changes. */
  subscribe(keys, listener) {
    for (const key of keys) {
      if (!this.#listeners.has(key)) this.#listeners.set(key, new Set());
      this.#listeners.get(key).add(listener);
    }
    listener();
  }
}

export const store = new Store({
  take: null,
  editing: false,
  practising: false,
  selection: new Set(), // notes of the take
  several: false, // fingers select more notes, as with Shift
  snap: true,
  speed: 1,
  countIn: false,
  metronome: false,
  naming: "English",
});
