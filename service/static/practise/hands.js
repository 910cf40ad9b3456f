/** Assigns the notes of a keyboard to hands, with the costs of `hands` in the service's `score/staves.py`. */

import { hasHands } from "../notes/instruments.js";

const HAND = 14; // span of a hand in semitones
const MIDDLE = 60; // usual pitch between the hands
const FOLLOWED = 0.7; // maximum share of the way from MIDDLE to the middle of near notes
// Costs per semitone beyond the middle, of leaps and of wide chords; cost of alternating hands.
const [BEYOND, LEAP, WIDE, ALTERNATION] = [0.12, 0.06, 0.04, 0.4];
const NEAR_S = 1; // notes at most this long before or after a chord move the pitch between the hands
const TOGETHER_S = 0.04; // notes that start within this time are a chord

/**
 * Map each note to "left" or "right". Wide stretches, crossing the middle, leaps, and alternation have costs.
 * @returns {Map<object, "left" | "right">}
 */
export function handsOf(notes) {
  const hands = new Map();
  let centres = [48, 67];
  let lastUsed = [true, true];
  const chords = chordsOf(notes.filter(hasHands));
  const middles = middlesOf(chords);
  for (const [n, chord] of chords.entries()) {
    const middle = middles[n];
    const options = Array.from({ length: chord.length + 1 }, (_, split) => {
      const own = [chord.slice(0, split), chord.slice(split)].map((part) => part.map(({ pitch }) => pitch));
      const now = own.map((part, hand) =>
        part.length ? part.reduce((sum, pitch) => sum + pitch, 0) / part.length : centres[hand],
      );
      const used = own.map((part) => part.length > 0);
      const alternates = used[0] !== used[1] && used[0] === lastUsed[1] && used[1] === lastUsed[0];
      const price = own.reduce((sum, part, hand) => {
        if (!part.length) return sum;
        const [low, high] = [part[0], part.at(-1)];
        const beyond = Math.max(0, hand ? middle - low : high - middle);
        const stretch = Math.max(0, high - low - HAND) + WIDE * (high - low);
        return sum + stretch + BEYOND * beyond + LEAP * Math.abs(now[hand] - centres[hand]);
      }, alternates ? ALTERNATION : 0);
      return { split, now, used, price };
    });
    const best = options.reduce((a, b) => (b.price < a.price ? b : a));
    centres = best.now;
    lastUsed = best.used;
    for (const [at, note] of chord.entries()) hands.set(note, at < best.split ? "left" : "right");
  }
  return hands;
}

/** Pitch between the hands at each chord, which follows near notes if one hand cannot reach them all. */
function middlesOf(chords) {
  let [first, end] = [0, 0];
  return chords.map(([{ onset }]) => {
    while (chords[first][0].onset < onset - NEAR_S) first++;
    while (end < chords.length && chords[end][0].onset <= onset + NEAR_S) end++;
    const near = chords.slice(first, end);
    const low = Math.min(...near.map((chord) => chord[0].pitch));
    const high = Math.max(...near.map((chord) => chord.at(-1).pitch));
    const followed = Math.min(FOLLOWED, Math.max(0, (high - low) / HAND - 1));
    return MIDDLE + followed * ((low + high) / 2 - MIDDLE);
  });
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
