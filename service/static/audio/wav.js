/** The 44 bytes before 16-bit mono PCM that make a WAV file of it. */

const HEADER_BYTES = 44;
const SAMPLE_BYTES = 2;

export function wavHeader(rate, samples) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES));
  const dataBytes = samples * SAMPLE_BYTES;
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + dataBytes, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format
  view.setUint16(20, 1, true); // integer PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * SAMPLE_BYTES, true);
  view.setUint16(32, SAMPLE_BYTES, true);
  view.setUint16(34, 8 * SAMPLE_BYTES, true);
  text(36, "data");
  view.setUint32(40, dataBytes, true);
  return view.buffer;
}
