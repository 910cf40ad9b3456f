/**
 * State that several views share. Each view sets the values that it changes and subscribes to the values
 * that it shows, so no view calls another.
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

  /** Set values, and call the listeners of those that changed. */
  set(values) {
    const changed = Object.keys(values).filter((key) => this.#state[key] !== values[key]);
    Object.assign(this.#state, values);
    const listeners = new Set(changed.flatMap((key) => [...(this.#listeners.get(key) ?? [])]));
    for (const listener of listeners) listener();
  }

  /** Call `listener` now and whenever one of these values changes. */
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
  selection: new Set(), // selected notes of the take
  several: false, // true if touches add notes to the selection, like Shift
  snap: true,
  speed: 1,
  countIn: false,
  metronome: false,
  naming: "English",
});
