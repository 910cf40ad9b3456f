/**
 * Seconds of audio in a file, from a few bytes of its header: enough for a progress bar without
 * decoding anything. `null` where the format does not say (MP3) or the file is not understood.
 */

const TAIL_BYTES = 65_536; // the last Ogg page begins within its greatest size

export async function recordingSeconds(file) {
  const head = new DataView(await file.slice(0, 4096).arrayBuffer());
  if (head.byteLength < 44) return null;
  const seconds = { RIFF: wav, fLaC: flac, OggS: ogg }[tag(head, 0)]?.(head, file);
  const value = await seconds;
  return Number.isFinite(value) && value > 0 ? value : null;
}

const tag = (view, at) =>
  String.fromCharCode(...[0, 1, 2, 3].map((i) => view.getUint8(at + i)));

function wav(head, file) {
  let byteRate = 0;
  for (let at = 12; at + 20 <= head.byteLength; ) {
    const size = head.getUint32(at + 4, true);
    if (tag(head, at) === "fmt ") byteRate = head.getUint32(at + 16, true);
    // A recorder that was cut off leaves a wrong size: the file's own length is the bound.
    if (tag(head, at) === "data") return Math.min(size, file.size - at - 8) / byteRate;
    at += 8 + size + (size & 1);
  }
  return null;
}

function flac(head) {
  const rate = head.getUint32(18) >>> 12; // 20 bits after the block and frame sizes
  const samples = (head.getUint8(21) & 0x0f) * 2 ** 32 + head.getUint32(22);
  return samples / rate;
}

async function ogg(head, file) {
  const packet = 27 + head.getUint8(26);
  const opus = tag(head, packet) === "Opus";
  const rate = opus ? 48_000 : head.getUint32(packet + 12, true);
  const tail = new DataView(await file.slice(-TAIL_BYTES).arrayBuffer());
  for (let at = tail.byteLength - 27; at >= 0; at -= 1) {
    if (tail.getUint8(at) === 0x4f && tag(tail, at) === "OggS") {
      return Number(tail.getBigUint64(at + 6, true)) / rate;
    }
  }
  return null;
}
