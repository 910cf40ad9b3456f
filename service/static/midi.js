/**
 * A Standard MIDI File (format 0, 120 bpm) from notes.
 *
 * The server sends the file of each finished session; this one is for takes that no single
 * session covers: after a reconnect, or when the server went away before the end.
 */

const TICKS_PER_BEAT = 480;
const TICKS_PER_SECOND = TICKS_PER_BEAT * 2; // 120 bpm
const TEMPO_US_PER_BEAT = 500_000;

export function midiFile(notes) {
  const events = [];
  for (const { pitch, velocity, onset, offset } of notes) {
    const on = Math.round(onset * TICKS_PER_SECOND);
    const off = Math.max(on + 1, Math.round(offset * TICKS_PER_SECOND));
    events.push({ tick: on, order: 1, bytes: [0x90, pitch, velocity] });
    events.push({ tick: off, order: 0, bytes: [0x80, pitch, 64] });
  }
  // At one tick offs come first, or a struck-again note would be cut by its own predecessor.
  events.sort((a, b) => a.tick - b.tick || a.order - b.order);

  const tempo = [16, 8, 0].map((shift) => (TEMPO_US_PER_BEAT >> shift) & 0xff);
  const track = [0, 0xff, 0x51, 3, ...tempo];
  let tick = 0;
  for (const event of events) {
    track.push(...variableLength(event.tick - tick), ...event.bytes);
    tick = event.tick;
  }
  track.push(0, 0xff, 0x2f, 0);
  return new Uint8Array([
    ...ascii("MThd"), ...uint32(6), 0, 0, 0, 1, TICKS_PER_BEAT >> 8, TICKS_PER_BEAT & 0xff,
    ...ascii("MTrk"), ...uint32(track.length),
    ...track,
  ]);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

const ascii = (text) => [...text].map((char) => char.charCodeAt(0));

const uint32 = (value) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff);

function variableLength(value) {
  const bytes = [value & 0x7f];
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) bytes.unshift((rest & 0x7f) | 0x80);
  return bytes;
}
