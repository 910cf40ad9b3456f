/** Labels and colours of instruments. Takes contain their General MIDI programs. */

const HUES = {
  piano: 255, "electric piano": 240, harpsichord: 225, organ: 305, plucked: 180,
  violin: 25, viola: 150, cello: 85, contrabass: 320,
  flute: 200, oboe: 125, clarinet: 290, bassoon: 55, saxophone: 345,
  horn: 105, brass: 70, voice: 5, mallets: 170,
};
// First and last General MIDI program of the instruments whose notation the service knows. Program 0 is missing,
// because files contain it for unknown instruments.
const PROGRAMS = {
  piano: [1, 3], "electric piano": [4, 5], harpsichord: [6, 7], organ: [16, 20], plucked: [24, 37],
  violin: [40, 40], viola: [41, 41], cello: [42, 42], contrabass: [43, 43], voice: [52, 54], horn: [60, 60],
  saxophone: [65, 65], oboe: [68, 68], bassoon: [70, 70], clarinet: [71, 71], flute: [72, 75],
};
const LABELS = { plucked: "guitar" }; // labels that differ from the name
const KEYBOARDS = ["piano", "electric piano", "harpsichord", "organ", "mallets"];
const PEDAL_INSTRUMENTS = ["piano", "electric piano"];
const SOFT = 25;
const LOUD = 105;

/** The label of an instrument, and the instrument with a label, or the label itself if it is unknown. */
export const labelOf = (instrument) => LABELS[instrument] ?? instrument;
export const instrumentOf = (label) =>
  Object.keys(HUES).find((name) => labelOf(name) === label.toLowerCase()) ?? label;

/** The instrument of a General MIDI program, or undefined if it is unknown. */
export const instrumentOfProgram = (program) =>
  Object.keys(PROGRAMS).find((name) => PROGRAMS[name][0] <= program && program <= PROGRAMS[name][1]);

/** True if the service has this class of instruments. */
export const isInstrument = (name) => Object.hasOwn(HUES, name);

/** A hue. Those of unknown names, such as "part 1" and "part 2", differ. */
const hueOf = (name) =>
  HUES[name] ?? [...name].reduce((hue, char) => (31 * hue + 47 * char.codePointAt(0)) % 360, 0);

/** A CSS colour. `lightness`, 0 to 1, depends on the page's colour scheme. */
export const colourOf = (instrument, lightness) =>
  `oklch(${lightness} 0.15 ${hueOf(instrument)})`;

/** Opacity, from its velocity, of a note whose colour shows its instrument. Always visible. */
export const loudness = (velocity) => 0.3 + 0.7 * force(velocity);

/** Map usual velocities to 0 to 1, for colours and opacity. */
export const force = (velocity) => Math.max(0, Math.min(1, (velocity - SOFT) / (LOUD - SOFT)));

/** Map of instruments to their numbers of notes, in the order of their programs. */
export function countInstruments(notes, programs) {
  const counts = new Map();
  for (const { instrument } of notes) {
    if (instrument) counts.set(instrument, (counts.get(instrument) ?? 0) + 1);
  }
  const place = (name) => programs[name] ?? 128;
  return new Map([...counts].sort(([a], [b]) => place(a) - place(b)));
}

/** True if a note is for the hands of a keyboard. */
export const hasHands = ({ instrument }) => !instrument || KEYBOARDS.includes(instrument);

/** True if the instrument has a sustain pedal, or is unknown and may therefore be a piano. */
export const hasPedal = (instrument) => !isInstrument(instrument) || PEDAL_INSTRUMENTS.includes(instrument);
