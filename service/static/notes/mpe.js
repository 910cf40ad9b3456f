/**
 * Notes with pitch bends as events of a MIDI file, as in the server's files (MIDI Polyphonic Expression).
 * A bend applies to all notes of its channel, so concurrent notes have different channels.
 */

import { CONTROL, NOTE_OFF, NOTE_ON, PROGRAM, SUSTAIN } from "./midi.js";

const BEND = 0xe0;
const MASTER = 0;
const MEMBERS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15]; // 9 is for percussion
const RANGE_SEMITONES = 48;
const UNITS_PER_CENT = 8192 / (100 * RANGE_SEMITONES);
const MIN_CENTS = 1; // minimum change of a bend that is written
const [ENDS, SETS, BEGINS] = [0, 1, 2]; // order within a tick

/** Events that set up a zone of MPE and the bend range of its channels. */
export const mpeSetup = () =>
  [[MASTER, 6, 15], ...MEMBERS.map((channel) => [channel, 0, RANGE_SEMITONES])].flatMap(([channel, number, value]) =>
    [[101, 0], [100, number], [6, value], [101, 127], [100, 127]].map((control) => ({
      tick: 0, order: ENDS, bytes: [CONTROL | channel, ...control],
    })),
  );

/** The events of each part. `parts`: [{notes, pedal, program}]. All parts share the channels. */
export function bentEvents(parts, tickOf) {
  const events = parts.map(() => []);
  const moments = parts.flatMap(({ notes, pedal }, number) => [
    ...notes.map((note) => ({ tick: tickOf(note.onset), number, note })),
    ...pedal.flatMap(({ onset, offset }) => [
      { tick: tickOf(onset), number, level: 127 },
      { tick: Math.max(tickOf(onset) + 1, tickOf(offset)), number, level: 0 },
    ]),
  ]);
  moments.sort((a, b) => a.tick - b.tick);
  const levels = parts.map(() => 0); // of the pedal
  const channels = [MASTER, ...MEMBERS].map((channel) => ({ channel, number: -1, silentFrom: 0 }));
  const [master, ...members] = channels;
  for (const { tick, number, note, level } of moments) {
    const add = (at, order, ...bytes) => events[number].push({ tick: at, order, bytes });
    if (!note) {
      levels[number] = level;
      const own = channels.filter((one) => one.number === number);
      for (const { channel } of own) add(tick, SETS, CONTROL | channel, SUSTAIN, level);
      continue;
    }
    // Prefer a silent channel of this part, then the one that is silent for longest. If none is silent,
    // write the note without bends, because they would apply to another note.
    const silent = members.filter((one) => one.silentFrom <= tick);
    const rank = (one) => Number(one.number !== number);
    silent.sort((a, b) => rank(a) - rank(b) || a.silentFrom - b.silentFrom);
    const used = silent[0] ?? master;
    const end = Math.max(tick + 1, tickOf(note.offset));
    const { channel } = used;
    if (used.number !== number) {
      add(tick, SETS, PROGRAM | channel, parts[number].program);
      add(tick, SETS, CONTROL | channel, SUSTAIN, levels[number]);
    }
    Object.assign(used, { number, silentFrom: end });
    const curve = used === master ? [[note.onset, 0]] : curveOf(note);
    for (const [time, cents] of curve) add(tickOf(time), SETS, BEND | channel, ...unitsOf(cents));
    add(tick, BEGINS, NOTE_ON | channel, note.pitch, note.velocity);
    add(end, ENDS, NOTE_OFF | channel, note.pitch, 64);
  }
  return events;
}

/** Changes of a note's bend, [seconds, cents], from its onset on. An edit may have moved its ends. */
function curveOf({ onset, offset, bends = [] }) {
  let current = bends.findLast(([time]) => time <= onset)?.[1] ?? bends[0]?.[1] ?? 0;
  const curve = [[onset, current]];
  for (const [time, cents] of bends) {
    if (time <= onset || time >= offset || Math.abs(cents - current) < MIN_CENTS) continue;
    curve.push([time, cents]);
    current = cents;
  }
  return curve;
}

function unitsOf(cents) {
  const units = 8192 + Math.max(-8192, Math.min(8191, Math.round(cents * UNITS_PER_CENT)));
  return [units & 0x7f, units >> 7];
}
