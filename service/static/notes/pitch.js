/** Names of MIDI pitches, such as C4 for 60. 69 is A4 = 440 Hz. */

const NAMES = {
  English: ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"],
  German: ["C", "Cis", "D", "Dis", "E", "F", "Fis", "G", "Gis", "A", "B", "H"],
  "Do re mi": ["Do", "Do♯", "Re", "Re♯", "Mi", "Fa", "Fa♯", "Sol", "Sol♯", "La", "La♯", "Si"],
};
let names = NAMES.English;
const BLACK = new Set([1, 3, 6, 8, 10]);

export const isBlackKey = (pitch) => BLACK.has(pitch % 12);

/** Set the names of notes: a key of NAMES. */
export const setNaming = (naming) => (names = NAMES[naming]);

export const noteName = (pitch) => `${names[pitch % 12]}${Math.floor(pitch / 12) - 1}`;

export const frequencyHz = (pitch) => 440 * 2 ** ((pitch - 69) / 12);

/** The lowest and the highest pitch of at least one note. */
export function pitchRange(notes) {
  let low = 127;
  let high = 0;
  for (const { pitch } of notes) {
    low = Math.min(low, pitch);
    high = Math.max(high, pitch);
  }
  return { low, high };
}

/** 75.26 -> "1:15.2". Tenths are truncated, so that a clock never shows 60 seconds. */
export function clockText(seconds) {
  const tenths = Math.floor(Math.max(0, seconds) * 10 + 1e-6);
  const minutes = Math.floor(tenths / 600);
  const rest = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
  return `${minutes}:${rest}`;
}

export const countText = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
