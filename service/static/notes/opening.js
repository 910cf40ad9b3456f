/** Opens takes from files: JSON of the service, JSON saved by the page, including its edits, or any MIDI file. */

import { hasHands, instrumentOf, instrumentOfProgram, isInstrument, labelOf } from "./instruments.js";
import { FRAME_S, Take } from "./take.js";

const ENDINGS = /\.(json|mid|midi)$/i;
const PERCUSSION = 9; // channel of percussion
const KEYBOARD_PROGRAMS = 8; // number of programs of pianos and harpsichords, the first ones
const MAX_BEATS_PER_BAR = 12; // limit of scores
const DEFAULT_US = 500_000; // default duration of a quarter note in microseconds
const MAX_CENTS = 4800; // range of bends in MIDI files
const UNREADABLE = "is not a take: open JSON that was saved here, or a MIDI file.";

/** The name of a file without its ending. */
export const stem = (name) => name.replace(/\.\w+$/, "");

export const isTakeFile = ({ name }) => ENDINGS.test(name);

/** Open a file. Throws an Error whose message the page can show. */
export async function openTake(file) {
  const name = stem(file.name);
  const json = /json$/i.test(file.name);
  let take;
  try {
    take = json ? takeOfJson(JSON.parse(await file.text()), name) : takeOfMidi(await file.arrayBuffer(), name);
  } catch (cause) {
    throw new Error(`${file.name} ${UNREADABLE}`, { cause });
  }
  if (!json && !take.notes.length) throw new Error(`${file.name} has no pitched notes.`);
  return take;
}

const number = (value, low, high) => {
  if (!Number.isFinite(value) || value < low || value > high) throw new RangeError(`${value}`);
  return value;
};

const spanOf = ({ onset_s, offset_s }) => ({ onset: number(onset_s, 0, 1e6), offset: number(offset_s, onset_s, 1e6) });

const noteOf = ({ pitch, velocity = 64, confidence = 1, instrument = null, onset_s, offset_s, bends }) => ({
  pitch: number(pitch, 0, 127),
  velocity: number(velocity, 1, 127),
  confidence: number(confidence, 0, 1),
  instrument: instrument && String(instrument),
  ...spanOf({ onset_s, offset_s }),
  ...(bends?.length && {
    bends: bends.map((cents, frame) => [onset_s + frame * FRAME_S, number(cents, -MAX_CENTS, MAX_CENTS)]),
  }),
});

const beatOf = ({ time_s, place, beats_per_bar, subdivision }) => ({
  time_s: number(time_s, -1e6, 1e6),
  place: number(place, 0, MAX_BEATS_PER_BAR - 1),
  beats_per_bar: number(beats_per_bar, 2, MAX_BEATS_PER_BAR),
  subdivision: number(subdivision ?? 2, 2, 3),
});

function takeOfJson(data, name) {
  const notes = data.notes.map(noteOf);
  const take = finish(new Take(String(data.name ?? name)), notes, data.duration_s);
  take.pedal = (data.pedal ?? []).map(spanOf);
  take.title = String(data.title ?? "");
  take.beats = (data.beats ?? []).map(beatOf);
  const programs = data.programs ?? data.instruments ?? {}; // the service's name is `instruments`
  for (const [name, program] of Object.entries(programs)) take.programs[name] = number(program, 0, 127);
  if (data.transcribed) {
    const { notes, beats, semitones = 0 } = data.transcribed;
    take.restoreEdits(notes.map(noteOf), beats?.map(beatOf) ?? take.beats, number(semitones, -127, 127));
  }
  return take;
}

function finish(take, notes, length = 0) {
  take.notes = notes.sort((a, b) => a.onset - b.onset);
  for (const { instrument } of notes) if (instrument) take.programs[instrument] ??= 0;
  take.finish({ length: notes.reduce((last, { offset }) => Math.max(last, offset), length) });
  return take;
}

export function takeOfMidi(buffer, name) {
  const view = new DataView(buffer);
  const text = (at, count) => String.fromCharCode(...new Uint8Array(buffer, at, count));
  if (text(0, 4) !== "MThd") throw new Error("not a MIDI file");
  const division = view.getUint16(12);
  if (division & 0x8000) throw new Error("times in SMPTE frames");
  const tempos = [];
  const bars = [];
  const tracks = [];
  for (let at = 8 + view.getUint32(4); at + 8 <= view.byteLength; ) {
    const end = at + 8 + view.getUint32(at + 4);
    if (text(at, 4) === "MTrk") tracks.push(readTrack(view, at + 8, end, tempos, bars));
    at = end;
  }
  const secondsOf = clockOf(tempos, division);
  const take = new Take(name);
  const notes = [];
  const sounding = tracks.filter((track) => track.notes.length);
  for (const { instrument, program, notes: own } of partsOf(sounding)) {
    if (instrument) take.programs[instrument] = program;
    for (const { pitch, velocity, on, off } of own) {
      notes.push({ pitch, velocity, confidence: 1, instrument, onset: secondsOf(on), offset: secondsOf(off) });
    }
  }
  // Several tracks may have the same presses.
  for (const { on, off } of sounding.flatMap(({ pedal }) => pedal).sort((a, b) => a.on - b.on)) {
    const [onset, offset] = [secondsOf(on), secondsOf(off)];
    const last = take.pedal.at(-1);
    if (last && onset < last.offset) last.offset = Math.max(last.offset, offset);
    else take.pedal.push({ onset, offset });
  }
  const last = Math.max(0, ...sounding.map((track) => track.end));
  if (isInTime(tempos, sounding, division)) take.beats = beatsOf(bars, division, last, secondsOf);
  return finish(take, notes);
}

/**
 * Return the parts [{instrument, program, notes}] of tracks. Channels with different programs are separate
 * parts, because a file of type 0 has one track. Tracks of a name are one part if they share a channel or are
 * hands of a keyboard, else their names get numbers.
 */
function partsOf(tracks) {
  const groups = tracks.flatMap(({ name, programs, notes }) => {
    const used = [...new Set(notes.map(({ channel }) => programs[channel] ?? 0))];
    return used.map((program) => {
      const own = notes.filter(({ channel }) => (programs[channel] ?? 0) === program);
      return { name: used.length === 1 ? name : program ? "" : "piano", program, notes: own };
    });
  });
  const channels = new Map(); // instrument -> channel
  return groups.map(({ name, program, notes }, index) => {
    const [{ channel }] = notes;
    const unnamed = groups.length > 1 ? `part ${index + 1}` : null;
    let instrument = instrumentOf(name) || instrumentOfProgram(program) || unnamed;
    const label = labelOf(instrument);
    const isHand = isInstrument(instrument) ? hasHands({ instrument }) : program < KEYBOARD_PROGRAMS;
    const isOther = () => channels.has(instrument) && channels.get(instrument) !== channel;
    for (let number = 2; isOther() && !isHand; number += 1) instrument = `${label} ${number}`;
    channels.set(instrument, channel);
    return { instrument, program, notes };
  });
}

/** Return {name, programs: [], notes: [{channel, pitch, velocity, on, off}], pedal: [{on, off}], end}, with times in ticks. */
function readTrack(view, at, end, tempos, bars) {
  const track = { name: "", programs: [], notes: [], pedal: [], end: 0 };
  const open = new Map();
  let tick = 0;
  let status = 0;
  let down = null;
  const length = () => {
    for (let value = 0; ; ) {
      const byte = view.getUint8(at++);
      value = (value << 7) | (byte & 0x7f);
      if (byte < 0x80) return value;
    }
  };
  const close = (key) => {
    const note = open.get(key);
    if (note) track.notes.push({ ...note, off: Math.max(tick, note.on + 1) });
    open.delete(key);
  };
  while (at < end) {
    tick += length();
    if (view.getUint8(at) & 0x80) status = view.getUint8(at++);
    if (status >= 0xf0) {
      const type = status === 0xff ? view.getUint8(at++) : 0;
      const size = length();
      if (type === 0x03) track.name = new TextDecoder().decode(new Uint8Array(view.buffer, at, size)).trim();
      if (type === 0x51) tempos.push({ tick, us: (view.getUint8(at) << 16) | view.getUint16(at + 1) });
      if (type === 0x58) bars.push({ tick, count: view.getUint8(at), unit: 2 ** view.getUint8(at + 1) });
      at += size;
      continue;
    }
    const [kind, channel, first] = [status >> 4, status & 15, view.getUint8(at++)];
    if (kind === 12) track.programs[channel] = first;
    if (kind === 12 || kind === 13) continue;
    const second = view.getUint8(at++);
    if (channel === PERCUSSION) continue;
    const key = 128 * channel + first;
    if (kind === 8 || (kind === 9 && second === 0)) close(key);
    else if (kind === 9) {
      close(key);
      open.set(key, { channel, pitch: first, velocity: second, on: tick });
    } else if (kind === 11 && first === 64) {
      if (second >= 64) down ??= tick;
      else if (down !== null) {
        track.pedal.push({ on: down, off: tick });
        down = null;
      }
    }
  }
  for (const key of [...open.keys()]) close(key);
  if (down !== null) track.pedal.push({ on: down, off: tick });
  track.end = tick;
  return track;
}

/** Return a function from ticks to seconds. */
function clockOf(tempos, division) {
  tempos.sort((a, b) => a.tick - b.tick);
  const rows = [{ tick: 0, us: DEFAULT_US, seconds: 0 }];
  for (const { tick, us } of tempos) {
    const last = rows.at(-1);
    rows.push({ tick, us, seconds: last.seconds + ((tick - last.tick) * last.us) / division / 1e6 });
  }
  return (tick) => {
    const row = rows.findLast((earlier) => earlier.tick <= tick);
    return row.seconds + ((tick - row.tick) * row.us) / division / 1e6;
  };
}

/** True if the tempo changes or most notes start on a twelfth of a quarter. Unquantised recordings do neither. */
function isInTime(tempos, tracks, division) {
  const steps = tracks.flatMap(({ notes }) => notes.map(({ on }) => (12 * on) / division));
  const near = steps.filter((step) => Math.abs(step - Math.round(step)) < 0.2);
  return new Set(tempos.map(({ us }) => us)).size > 1 || near.length > 0.7 * steps.length;
}

/**
 * Return the beats of the time signatures: quarters, dotted quarters, or eighths in irregular metres
 * and 3/8; [] if there are no signatures. A first bar that is shorter than the next is a pickup.
 */
function beatsOf(bars, division, last, secondsOf) {
  bars.sort((a, b) => a.tick - b.tick);
  const isCompound = ({ unit, count }) => unit === 8 && count % 3 === 0;
  const hasDotted = bars.some((bar) => isCompound(bar) && bar.count > 3);
  const metres = bars.map(({ tick, count, unit }) => {
    const compound = hasDotted && isCompound({ unit, count });
    const size = (division * 4 * (compound ? 3 : 1)) / Math.max(unit, 4);
    const perBar = compound ? count / 3 : unit < 4 ? (count * 4) / unit : count;
    return { tick, size, perBar, subdivision: compound ? 3 : 2 };
  });
  const beats = [];
  for (const [at, { tick, size, perBar, subdivision }] of metres.entries()) {
    const next = metres[at + 1];
    const count = Math.ceil(((next?.tick ?? last + 1) - tick) / size);
    const isPickup = at === 0 && next && count <= perBar && perBar < next.perBar;
    const near = metres[at - 1] ?? next ?? { perBar: 0 };
    const whole = isPickup || perBar < 2 ? near.perBar : perBar;
    if (whole < 2 || whole > MAX_BEATS_PER_BAR) return [];
    const first = isPickup ? whole - count : 0;
    for (let beat = 0; beat < count; beat += 1) {
      const time_s = secondsOf(tick + beat * size);
      beats.push({ time_s, place: (first + beat) % whole, beats_per_bar: whole, subdivision });
    }
  }
  return beats;
}
