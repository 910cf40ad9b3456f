/** Saves takes as MIDI, JSON and WAV files. Notes that the filter hides are omitted. */

import { store } from "../state/store.js";
import { midiFile, toBase64 } from "./midi.js";
import { FRAME_S } from "./take.js";

const KEEP_URL_MS = 60_000; // time for which a URL is valid, because writing a large file takes time

export const midiOf = (take, filter) => new Blob([bytesOf(take, filter)], { type: "audio/midi" });

function bytesOf(take, filter) {
  // Use the server's file if it contains exactly these notes.
  const whole = filter.neutral && !take.edited && take.midi;
  return whole ? take.midi : midiFile(filter.notesOf(take), take);
}

/** Notes, or presses of the pedal, with the field names of the service. */
export const rowsOf = (notes) =>
  notes.map(({ pitch, velocity, confidence, instrument, onset, offset, bends }) => {
    const named = { pitch, velocity, confidence, instrument: instrument ?? undefined };
    return { ...named, onset_s: onset, offset_s: offset, ...(bends && { bends: centsOf(onset, bends) }) };
  });

/** Convert the bends of a note to the cents of each frame from its onset on. An edit may have moved its onset. */
function centsOf(onset, bends) {
  const frames = Math.max(1, Math.round((bends.at(-1)[0] - onset) / FRAME_S) + 1);
  return Array.from({ length: frames }, (_, frame) => {
    const until = onset + (frame + 0.5) * FRAME_S;
    return (bends.findLast(([time]) => time < until) ?? bends[0])[1];
  });
}

/** A take with the field names of `POST /transcribe`. */
export function jsonOf(take, filter) {
  const notes = rowsOf(filter.notesOf(take));
  const { name, title, duration, beats, programs } = take;
  const document = { name, title, duration_s: duration, notes, pedal: rowsOf(take.pedal), beats, programs };
  // The transcribed notes are included, so that edits can be undone when the file is opened again.
  if (take.edited) {
    const { notes, beats } = take.transcribed;
    document.transcribed = { notes: rowsOf(notes), beats, semitones: take.transposed };
  }
  return new Blob([JSON.stringify(document, null, 1)], { type: "application/json" });
}

/** Let the user drag a take as a MIDI file to a DAW or a folder (Chrome and Edge). */
export function dragOut(element, takeOf, filter) {
  const filterOf = () => (takeOf() === store.get("take") ? filter : filter.ofOtherTakes);
  element.draggable = true;
  element.addEventListener("dragstart", ({ dataTransfer }) => {
    const take = takeOf();
    const data = `data:audio/midi;base64,${toBase64(bytesOf(take, filterOf()))}`;
    dataTransfer.setData("DownloadURL", `audio/midi:${stemOf(take)}.mid:${data}`);
    dataTransfer.effectAllowed = "copy";
  });
  element.addEventListener("dragend", ({ dataTransfer }) => {
    if (dataTransfer.dropEffect !== "none" && filterOf().neutral) takeOf().recordSaved();
  });
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_URL_MS);
}

/** The name of a take without characters that file systems reject, and without leading dots. */
export const stemOf = (take) => take.name.replace(/[/\\:*?"<>|]+/g, ".").replace(/^[. ]+/, "") || "take";

/** The title of a take's score. */
export const titleOf = (take) => take.title || take.name;
