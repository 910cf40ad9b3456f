/** Takes as files: MIDI, JSON and WAV. What the filter hides is left out. */

import { midiFile, toBase64 } from "./midi.js";

const KEEP_URL_MS = 60_000; // a large file is still being written to disk

export const midiOf = (take, filter) => new Blob([bytesOf(take, filter)], { type: "audio/midi" });

function bytesOf(take, filter) {
  // The server's own file if it holds the very same notes.
  const whole = filter.neutral && !take.edited && take.midi;
  return whole ? take.midi : midiFile(filter.notesOf(take), take);
}

/** The notes under the names that `POST /transcribe` gives them. */
export function jsonOf(take, filter) {
  const notes = filter.notesOf(take).map(({ pitch, velocity, confidence, instrument, onset, offset }) => ({
    pitch,
    velocity,
    confidence,
    onset_s: onset,
    offset_s: offset,
    ...(instrument ? { instrument } : {}),
  }));
  const least = { confidence: filter.confidence, length_s: filter.seconds };
  const pedal = take.pedal.map(({ onset, offset }) => ({ onset_s: onset, offset_s: offset }));
  const document = { name: take.name, duration_s: take.duration, least, notes, pedal };
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

/** A file name without its ending (not the minutes of "Live, 10.32") and what file systems forbid. */
export const stemOf = (take) =>
  take.name.replace(/\.(?=[^.]*[a-z])[^.]+$/i, "").replace(/[/\\:*?"<>|]+/g, ".") || "take";
