/**
 * Writes notes as a Standard MIDI File with the beats of their take.
 *
 * The server sends the file of each finished session. This module writes takes of several sessions, and
 * notes that were filtered or edited in the page. As in the server's files, each instrument has a track,
 * a program and a channel. Without instruments the file has one track. Notes with bends use MPE.
 */

import { countInstruments, hasPedal, labelOf } from "./instruments.js";
import { bentEvents, mpeSetup } from "./mpe.js";
import { tempoOf, TICKS_PER_BEAT } from "./tempo.js";

export const NOTE_ON = 0x90;
export const NOTE_OFF = 0x80;
export const CONTROL = 0xb0;
export const PROGRAM = 0xc0;
export const SUSTAIN = 64;

/** `programs`: instrument -> its program; `pedal`: [{onset, offset}]; `beats`: see `tempoOf`. */
export function midiFile(notes, { programs = {}, pedal = [], beats = [] } = {}) {
  const names = [...countInstruments(notes, programs).keys()];
  const { tickOf, events: tempo } = tempoOf(beats);
  const parts = ["", ...names].map((name) => ({
    notes: notes.filter(({ instrument }) => (instrument || "") === name),
    pedal: (name ? hasPedal(name) : !names.length) ? pedal : [],
    program: programs[name] ?? 0,
  }));
  const bent = notes.some(({ bends }) => bends?.length);
  const channels = [0, ...names.map((_, index) => channelOf(index))];
  const [unnamed, ...named] = bent
    ? bentEvents(parts, tickOf)
    : parts.map((part, index) => eventsOf(part, channels[index], tickOf));
  const tracks = [track([...tempo, ...(bent ? mpeSetup() : []), ...unnamed])];
  for (const [index, name] of names.entries()) {
    const text = new TextEncoder().encode(labelOf(name));
    const events = [{ tick: 0, order: 0, bytes: [0xff, 0x03, ...variableLength(text.length), ...text] }];
    if (!bent) events.push({ tick: 0, order: 0, bytes: [PROGRAM | channels[index + 1], parts[index + 1].program] });
    tracks.push(track([...events, ...named[index]]));
  }
  return new Uint8Array([
    ...ascii("MThd"), ...uint32(6), 0, names.length ? 1 : 0, ...uint16(tracks.length),
    ...uint16(TICKS_PER_BEAT), ...tracks.flat(),
  ]);
}

/** The channel of the instrument with this index: 0 to 15, except 9, the percussion channel. */
export const channelOf = (index) => [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15][index % 15];

export const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

export const toBase64 = (bytes) =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

function eventsOf({ notes, pedal }, channel, tickOf) {
  const events = [];
  const span = ({ onset, offset }) => {
    const on = tickOf(onset);
    return [on, Math.max(on + 1, tickOf(offset))];
  };
  for (const press of pedal) {
    const [on, off] = span(press);
    events.push({ tick: off, order: 1, bytes: [CONTROL | channel, SUSTAIN, 0] });
    events.push({ tick: on, order: 2, bytes: [CONTROL | channel, SUSTAIN, 127] });
  }
  for (const note of notes) {
    const [on, off] = span(note);
    events.push({ tick: on, order: 4, bytes: [NOTE_ON | channel, note.pitch, note.velocity] });
    events.push({ tick: off, order: 3, bytes: [NOTE_OFF | channel, note.pitch, 64] });
  }
  return events;
}

/** At each tick, note-offs precede note-ons. Otherwise they would end notes of the same pitch that start there. */
function track(events) {
  events.sort((a, b) => a.tick - b.tick || a.order - b.order);
  const bytes = [];
  let tick = 0;
  for (const event of events) {
    // Not one spread: an hour of music has more bytes than the maximum number of arguments.
    bytes.push(...variableLength(event.tick - tick), ...event.bytes);
    tick = event.tick;
  }
  bytes.push(0, 0xff, 0x2f, 0);
  return [...ascii("MTrk"), ...uint32(bytes.length), ...bytes];
}

const ascii = (text) => [...text].map((char) => char.charCodeAt(0));

const uint16 = (value) => [value >>> 8, value & 0xff];

const uint32 = (value) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff);

function variableLength(value) {
  const bytes = [value & 0x7f];
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) bytes.unshift((rest & 0x7f) | 0x80);
  return bytes;
}
