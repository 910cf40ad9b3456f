/** Takes as files: MIDI, JSON and WAV. What the filter hides is left out. */

import { midiFile, toBase64 } from "./midi.js";

const MEDIA_ENDING =
  /\.(wav|wave|bwf|mp[234]|m4[abv]|mpe?g|mk[av]|mov|avi|webm|flac|og[agv]|opus|aac|aiff?|aifc|ape|au|snd|caf|d[fs]f|tta|w64|wma|wv|3gp|json|midi?)$/i;
const KEEP_URL_MS = 60_000; // a large file is still being written to disk

export const midiOf = (take, filter) => new Blob([bytesOf(take, filter)], { type: "audio/midi" });

function bytesOf(take, filter) {
  // The server's own file if it holds the very same notes.
  const whole = filter.neutral && !take.edited && take.midi;
  return whole ? take.midi : midiFile(filter.notesOf(take), take);
}

/** Notes, or presses of the pedal, under the names of the service. */
export const rowsOf = (notes) =>
  notes.map(({ pitch, velocity, confidence, instrument, onset, offset }) => {
    const named = { pitch, velocity, confidence, instrument: instrument ?? undefined };
    return { ...named, onset_s: onset, offset_s: offset };
  });

/** The notes under the names that `POST /transcribe` gives them. */
export function jsonOf(take, filter) {
  const notes = rowsOf(filter.notesOf(take));
  const least = { confidence: filter.confidence, length_s: filter.seconds };
  const { name, duration, beats, programs } = take;
  const document = { name, duration_s: duration, least, notes, pedal: rowsOf(take.pedal), beats, programs };
  // What was heard before it was edited: the file can be opened again, and the edits taken back.
  if (take.edited) document.heard = { notes: rowsOf(take.heard.notes), beats: take.heard.beats };
  return new Blob([JSON.stringify(document, null, 1)], { type: "application/json" });
}

/** Let a take be dragged out as a MIDI file, into a DAW or a folder (Chrome and Edge). */
export function dragOut(element, takeOf, filter) {
  element.draggable = true;
  element.addEventListener("dragstart", ({ dataTransfer }) => {
    const take = takeOf();
    const data = `data:audio/midi;base64,${toBase64(bytesOf(take, filter))}`;
    dataTransfer.setData("DownloadURL", `audio/midi:${stemOf(take)}.mid:${data}`);
    dataTransfer.effectAllowed = "copy";
  });
  element.addEventListener("dragend", ({ dataTransfer }) => {
    if (dataTransfer.dropEffect !== "none") takeOf().wasSaved();
  });
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_URL_MS);
}

/** A file name without the ending of a recording and what file systems forbid. */
export const stemOf = (take) => take.name.replace(MEDIA_ENDING, "").replace(/[/\\:*?"<>|]+/g, ".") || "take";

/** The title of a take's score. */
export const titleOf = (take) => take.title || take.name.replace(MEDIA_ENDING, "");
