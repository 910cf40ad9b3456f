/** A view of a take. It is redrawn shortly after changes, once for several changes. */
export class TakeView {
  #draw;
  #waitMs;
  #pending = false;
  take = null;

  /** `waitMs` returns the time from a change to `draw` in ms. */
  constructor(draw, waitMs) {
    this.#draw = draw;
    this.#waitMs = waitMs;
  }

  soon = () => {
    if (this.#pending) return;
    this.#pending = true;
    setTimeout(() => {
      this.#pending = false;
      if (this.take) this.#draw();
    }, this.#waitMs());
  };

  show(take) {
    for (const type of ["change", "finish"]) {
      this.take?.removeEventListener(type, this.soon);
      take.addEventListener(type, this.soon);
    }
    this.take = take;
    this.soon();
  }
}
