/** The input level: a bar in decibels below full scale, with a peak mark that falls slowly. */

const FLOOR_DB = -60;
const CLIP_DB = -0.3;
const FALL_DB_PER_S = 24;
const PEAK_HOLD_MS = 900;
const SPOKEN_EVERY_MS = 1000; // interval of the value for screen readers

export class Meter {
  #element;
  #bar;
  #peakMark;
  #level = FLOOR_DB;
  #peak = FLOOR_DB;
  #peakTime = 0;
  #time = 0;
  #spoken = 0;

  constructor(element) {
    this.#element = element;
    [this.#bar, this.#peakMark] = element.children;
    this.reset();
  }

  reset() {
    this.#level = this.#peak = FLOOR_DB;
    this.#element.classList.remove("clipping");
    this.#draw();
    this.#speak();
  }

  /** `peak`: maximum magnitude of the newest chunk, relative to full scale. */
  push(peak, now = performance.now()) {
    const fallen = (FALL_DB_PER_S * (now - this.#time)) / 1000;
    this.#time = now;
    const decibels = Math.max(FLOOR_DB, 20 * Math.log10(Math.max(peak, 1e-6)));
    this.#level = Math.max(decibels, this.#level - fallen, FLOOR_DB);
    if (decibels >= this.#peak || now - this.#peakTime > PEAK_HOLD_MS) {
      this.#peak = this.#level;
      this.#peakTime = now;
    }
    this.#element.classList.toggle("clipping", this.#peak > CLIP_DB);
    this.#draw();
    if (now - this.#spoken > SPOKEN_EVERY_MS) {
      this.#spoken = now;
      this.#speak();
    }
  }

  #draw() {
    const share = (decibels) => Math.min(1, 1 - decibels / FLOOR_DB);
    this.#bar.style.clipPath = `inset(0 ${(1 - share(this.#level)) * 100}% 0 0)`;
    this.#peakMark.style.left = `${share(this.#peak) * 100}%`;
    this.#peakMark.hidden = this.#peak <= FLOOR_DB;
  }

  #speak() {
    const rounded = Math.min(0, Math.round(this.#peak));
    this.#element.setAttribute("aria-valuenow", rounded);
    const text = rounded <= FLOOR_DB ? "silent" : `${rounded} decibels`;
    this.#element.setAttribute("aria-valuetext", text);
  }
}
