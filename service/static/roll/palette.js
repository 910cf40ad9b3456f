/**
 * The colours of the roll, which are read from the style sheet, so that the light and dark schemes are
 * defined in one place. Paper is light. Soft, medium and loud notes have three hues that also differ in lightness.
 */

import { colourOf, force, loudness } from "../notes/instruments.js";

const darkScheme = matchMedia("screen and (prefers-color-scheme: dark)");

export class Palette {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.surface = read("roll");
    this.shade = read("roll-shade");
    this.line = read("roll-line");
    this.octave = read("roll-octave");
    this.text = read("muted");
    this.strong = read("ink");
    this.cursor = read("accent");
    this.white = read("key-white");
    this.black = read("key-black");
    this.edge = read("key-edge");
    this.keyText = read("key-text");
    this.onNote = read("on-note");
    this.lightness = read("instrument-lightness");
    this.font = style.fontFamily;
    const [soft, middle, loud] = ["soft", "middle", "loud"].map((name) => read(`velocity-${name}`));
    this.velocities = Array.from({ length: 128 }, (_, velocity) => {
      const percent = 200 * force(velocity); // 0 to 200: soft to middle to loud
      const [from, to] = percent < 100 ? [soft, middle] : [middle, loud];
      return `color-mix(in srgb, ${from}, ${to} ${percent % 100 || (percent && 100)}%)`;
    });
  }

  /**
   * Return the colour and opacity of a note. With an instrument, the colour shows the instrument and the
   * opacity shows the loudness. Without one, the colour shows the loudness and the opacity the confidence.
   */
  note({ instrument, velocity, confidence }) {
    return instrument
      ? { colour: colourOf(instrument, this.lightness), opacity: loudness(velocity) }
      : { colour: this.velocities[velocity], opacity: opacity(confidence) };
  }

  static onChange(listener) {
    darkScheme.addEventListener("change", listener);
  }
}

/** Opacity that shows the confidence of a note. Every note is visible. */
const opacity = (confidence) => 0.35 + 0.65 * Math.max(0, Math.min(1, confidence));
