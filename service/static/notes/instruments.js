/** Labels and colours of instruments. A take has their General MIDI programs. */

const HUES = {
  piano: 255, "electric piano": 240, harpsichord: 225, organ: 305, plucked: 180,
  violin: 25, viola: 150, cello: 85, contrabass: 320,
  flute: 200, oboe: 125, clarinet: 290, bassoon: 55, saxophone: 345,
  horn: 105, brass: 70, voice: 5, mallets: 170,
};
const LABELS = { plucked: "guitar" }; // where the usual word is another
const UNKNOWN_HUE = 0; // of an instrument that only a newer server knows
const PEDAL_INSTRUMENTS = ["piano", "electric piano"];
const SOFT = 25;
const LOUD = 105;

/** An instrument's name for people, and the instrument that has a name. */
export const labelOf = (instrument) => LABELS[instrument] ?? instrument;
export const instrumentOf = (label) =>
  Object.keys(LABELS).find((name) => LABELS[name] === label.toLowerCase()) ?? label;

/** A CSS colour; `lightness` 0 to 1 is that of the page's scheme. */
export const colourOf = (instrument, lightness) =>
  `oklch(${lightness} 0.15 ${HUES[instrument] ?? UNKNOWN_HUE})`;

/** Opacity of a note whose colour is its instrument, from its velocity; high enough to be seen. */
export const loudness = (velocity) => 0.3 + 0.7 * force(velocity);

/** 0 to 1 within the velocities that players seldom leave: colours and opacity are spent there. */
export const force = (velocity) => Math.max(0, Math.min(1, (velocity - SOFT) / (LOUD - SOFT)));

/** instrument -> number of its notes, in the order of the instruments' programs. */
export function countInstruments(notes, programs) {
  const counts = new Map();
  for (const { instrument } of notes) {
    if (instrument) counts.set(instrument, (counts.get(instrument) ?? 0) + 1);
  }
  const place = (name) => programs[name] ?? 128;
  return new Map([...counts].sort(([a], [b]) => place(a) - place(b)));
}

/** Notes without an instrument have it: if none is known, any may be a piano's. */
export const hasPedal = (instrument) => !instrument || PEDAL_INSTRUMENTS.includes(instrument);
