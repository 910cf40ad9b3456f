/** Draws the piano keyboard at the side of the roll, with the sounding keys highlighted. */

import { isBlackKey, noteName } from "../notes/pitch.js";

const BLACK_LENGTH = 0.62; // length of a black key relative to a white key
const NAMED_ROW = 11; // minimum height of a row, in pixels, for names on all white keys

/** `rows` maps pitch -> y of the row's top; `sounding` maps pitch -> colour. */
export function drawKeyboard(context, { width, top, height, rows, low, high, sounding, palette }) {
  const row = rows.height;
  context.save();
  context.beginPath();
  context.rect(0, top, width, height);
  context.clip();
  context.fillStyle = palette.white;
  context.fillRect(0, top, width, height);

  for (let pitch = low; pitch <= high; pitch += 1) {
    if (isBlackKey(pitch)) continue;
    // A white key extends under half of each adjacent black key.
    const y = rows.top(pitch) - (isBlackKey(pitch + 1) ? row / 2 : 0);
    const bottom = rows.top(pitch) + row + (isBlackKey(pitch - 1 + 12) ? row / 2 : 0);
    if (sounding.has(pitch)) {
      context.fillStyle = sounding.get(pitch);
      context.fillRect(0, y, width, bottom - y);
    }
    context.fillStyle = palette.edge;
    context.fillRect(0, Math.round(bottom) - 1, width, 1);
  }

  for (let pitch = low; pitch <= high; pitch += 1) {
    if (!isBlackKey(pitch)) continue;
    context.fillStyle = sounding.get(pitch) ?? palette.black;
    context.beginPath();
    context.roundRect(-4, rows.top(pitch) + 0.5, width * BLACK_LENGTH + 4, row - 1, 2);
    context.fill();
  }

  context.textAlign = "right";
  context.textBaseline = "middle";
  context.font = `${Math.min(11, Math.max(9, row * 0.85))}px ${palette.font}`;
  for (let pitch = low; pitch <= high; pitch += 1) {
    if (isBlackKey(pitch) || (pitch % 12 && row < NAMED_ROW)) continue;
    context.fillStyle = sounding.has(pitch) ? palette.onNote : palette.keyText;
    context.fillText(noteName(pitch), width - 5, rows.top(pitch) + row / 2 + 0.5);
  }
  context.restore();
  context.fillStyle = palette.edge;
  context.fillRect(width - 1, top, 1, height);
}

/** Map of sounding pitches to colours: notes that still sound in a live take, or notes at the cursor. */
export function soundingAt(take, head, cursor, filter, palette) {
  const sounding = new Map();
  if (take.stalled) return sounding;
  const notes = head === null ? take.between(cursor, cursor + 1e-3) : take.open.values();
  for (const note of notes) {
    if (filter.passes(note, head ?? cursor)) sounding.set(note.pitch, palette.note(note).colour);
  }
  return sounding;
}
