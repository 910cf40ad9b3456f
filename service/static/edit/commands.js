/**
 * Edits of notes as commands: {label, pairs, beats}. A pair [before, after] replaces one note; without
 * `before` the note is new, without `after` it is deleted. `beats` is [before, after] or absent. Notes
 * are never changed in place, so that a command can be applied, inverted and stored.
 *
 * @typedef {{pitch: number, velocity: number, confidence: number, instrument: string | null,
 *   onset: number, offset: number, bends?: number[][]}} Note
 * @typedef {{label: string, pairs: Array<[Note | null, Note | null]>, beats?: [object[], object[]]}} Command
 */

const MIN_LENGTH_S = 0.03;
const MAX_PITCH = 127;
const FIELDS = ["onset", "offset", "pitch", "velocity", "instrument"];

const inOrder = (notes) => notes.sort((a, b) => a.onset - b.onset || a.pitch - b.pitch);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** @returns {Command} */
const replacing = (label, notes, change) => ({
  label,
  pairs: [...notes].map((note) => [note, { ...note, ...change(note) }]),
});

/** The command that undoes `command`. */
export const inverse = ({ pairs, beats, ...rest }) => ({
  ...rest,
  pairs: pairs.map(([before, after]) => [after, before]),
  ...(beats && { beats: [beats[1], beats[0]] }),
});

/** The notes after a command, in order of onset. */
export function applied(notes, { pairs }) {
  if (!pairs.length) return notes;
  const gone = new Set(pairs.map(([before]) => before));
  const fresh = pairs.map(([, after]) => after).filter(Boolean);
  return inOrder([...notes.filter((note) => !gone.has(note)), ...fresh]);
}

/** @returns {Command} */
export const remove = (notes) => ({ label: "Delete", pairs: [...notes].map((note) => [note, null]) });

/** Add a note, with a confidence of 1. @returns {Command} */
export const add = (note) => ({ label: "Add", pairs: [[null, { confidence: 1, ...note }]] });

/** Move notes together by seconds and semitones, as far as all of them stay in range. */
export function move(notes, seconds, semitones) {
  const all = [...notes];
  const pitches = all.map(({ pitch }) => pitch);
  const later = Math.max(seconds, -Math.min(...all.map(({ onset }) => onset)));
  const up = clamp(semitones, -Math.min(...pitches), MAX_PITCH - Math.max(...pitches));
  return replacing("Move", all, ({ onset, offset, pitch, bends }) => ({
    onset: onset + later,
    offset: offset + later,
    pitch: pitch + up,
    ...(bends && { bends: bends.map(([time, cents]) => [time + later, cents]) }),
  }));
}

/** Move one end of each note: `edge` is "onset" or "offset". */
export function stretch(notes, edge, seconds) {
  return replacing("Stretch", notes, ({ onset, offset }) =>
    edge === "onset"
      ? { onset: clamp(onset + seconds, 0, offset - MIN_LENGTH_S) }
      : { offset: Math.max(onset + MIN_LENGTH_S, offset + seconds) },
  );
}

/** Split each note that sounds at `time` into two. */
export function split(notes, time) {
  const cut = [...notes].filter(
    ({ onset, offset }) => time > onset + MIN_LENGTH_S && time < offset - MIN_LENGTH_S,
  );
  return {
    label: "Split",
    pairs: cut.flatMap((note) => [
      [note, { ...note, offset: time }],
      [null, { ...note, onset: time }],
    ]),
  };
}

/** Join all notes of the same pitch and instrument, from the first onset to the last offset. */
export function join(notes) {
  const groups = Map.groupBy(inOrder([...notes]), ({ pitch, instrument }) => `${pitch} ${instrument}`);
  const pairs = [];
  for (const [first, ...rest] of groups.values()) {
    if (!rest.length) continue;
    const offset = Math.max(first.offset, ...rest.map((note) => note.offset));
    const joined = { ...first, offset };
    if ([first, ...rest].some(({ bends }) => bends)) {
      const bends = [first, ...rest].flatMap((note) => note.bends ?? [[note.onset, 0]]);
      joined.bends = bends.sort(([a], [b]) => a - b);
    }
    pairs.push([first, joined], ...rest.map((note) => [note, null]));
  }
  return { label: "Join", pairs };
}

export const louder = (notes, by) =>
  replacing("Velocity", notes, ({ velocity }) => ({ velocity: clamp(velocity + by, 1, 127) }));

export const setVelocity = (notes, velocity) =>
  replacing("Velocity", notes, () => ({ velocity: clamp(Math.round(velocity), 1, 127) }));

export const setInstrument = (notes, instrument) =>
  replacing("Instrument", notes, () => ({ instrument: instrument || null }));

/** Replace all notes by the transcribed notes. `beats`, `semitones`: see `Command`. */
export const restore = (notes, transcribed, beats, semitones) => ({
  label: "Restore transcription",
  pairs: [...notes.map((note) => [note, null]), ...transcribed.map((note) => [null, note])],
  ...(beats && { beats }),
  ...(semitones && { semitones }),
});

/** @returns {Command} */
export const changeBeats = (label, before, after) => ({ label, pairs: [], beats: [before, after] });

/** True if a command changes anything: a note at the end of its range may stay as it is. */
export const changes = ({ pairs, beats }) =>
  Boolean(beats) ||
  pairs.some(([before, after]) => !before || !after || FIELDS.some((name) => before[name] !== after[name]));

/** Commands that were run, and commands that were undone and can be run again. Unlimited. */
export class History {
  done = [];
  undone = [];

  push(command) {
    this.done.push(command);
    this.undone = [];
  }

  /** The command that undoes the last one; undefined if there is none. */
  undo() {
    const command = this.done.pop();
    if (command) this.undone.push(command);
    return command && inverse(command);
  }

  redo() {
    const command = this.undone.pop();
    if (command) this.done.push(command);
    return command;
  }
}
