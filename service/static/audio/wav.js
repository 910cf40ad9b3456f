const HEADER_BYTES = 44;
const SAMPLE_BYTES = 2;

/** Return the header of a WAV file of 16-bit PCM. `samples`: number of samples of each channel. */
export function wavHeader(rate, samples, channels = 1) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES));
  const frameBytes = channels * SAMPLE_BYTES;
  const dataBytes = samples * frameBytes;
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + dataBytes, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format
  view.setUint16(20, 1, true); // integer PCM
  view.setUint16(22, channels, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * frameBytes, true);
  view.setUint16(32, frameBytes, true);
  view.setUint16(34, 8 * SAMPLE_BYTES, true);
  text(36, "data");
  view.setUint32(40, dataBytes, true);
  return view.buffer;
}

/** Convert an AudioBuffer to a WAV file. */
export function wavOf(buffer) {
  const { length, sampleRate, numberOfChannels } = buffer;
  const samples = new Int16Array(length * numberOfChannels);
  for (let channel = 0; channel < numberOfChannels; channel += 1) {
    for (const [at, value] of buffer.getChannelData(channel).entries()) {
      samples[at * numberOfChannels + channel] = Math.round(32767 * Math.max(-1, Math.min(1, value)));
    }
  }
  return new Blob([wavHeader(sampleRate, length, numberOfChannels), samples], { type: "audio/wav" });
}
