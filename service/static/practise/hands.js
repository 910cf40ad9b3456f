/** Assigns the notes of a keyboard to hands, with the costs of the service's `score/staves.py`. */

const KEYBOARDS = ["piano", "electric piano", "harpsichord", "organ", "mallets"];
const HAND = 14; // span of a hand in semitones
const MIDDLE = 60; // usual pitch between the hands
const TOGETHER_S = 0.04; // notes that start within this time are a chord

export const hasHands = ({ instrument }) => !instrument || KEYBOARDS.includes(instrument);

/**
 * Map each note to "left" or "right". Wide stretches, crossing the middle, and leaps have costs.
 * @returns {Map<object, "left" | "right">}
 */
export function handsOf(notes) {
  const hands = new Map();
  let centres = [48, 67];
  for (const chord of chordsOf(notes.filter(hasHands))) {
    const options = Array.from({ length: chord.length + 1 }, (_, split) => {
      const own = [chord.slice(0, split), chord.slice(split)].map((part) => part.map(({ pitch }) => pitch));
      const now = own.map((part, hand) =>
        part.length ? part.reduce((sum, pitch) => sum + pitch, 0) / part.length : centres[hand],
      );
      const price = own.reduce((sum, part, hand) => {
        if (!part.length) return sum;
        const [low, high] = [part[0], part.at(-1)];
        const beyond = Math.max(0, hand ? MIDDLE - low : high - MIDDLE);
        return sum + Math.max(0, high - low - HAND) + 0.12 * beyond + 0.06 * Math.abs(now[hand] - centres[hand]);
      }, 0);
      return { split, now, price };
    });
    const best = options.reduce((a, b) => (b.price < a.price ? b : a));
    centres = best.now;
    for (const [at, note] of chord.entries()) hands.set(note, at < best.split ? "left" : "right");
  }
  return hands;
}

/** Chords of notes that start together, each sorted from the lowest note. */
function chordsOf(notes) {
  const chords = [];
  for (const note of notes) {
    if (note.onset - chords.at(-1)?.[0].onset <= TOGETHER_S) chords.at(-1).push(note);
    else chords.push([note]);
  }
  for (const chord of chords) chord.sort((a, b) => a.pitch - b.pitch);
  return chords;
}
