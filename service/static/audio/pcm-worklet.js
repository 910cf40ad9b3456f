/**
 * Runs on the audio thread: mixes the input to mono and posts it as 16-bit little-endian PCM
 * in chunks of about 20 ms, each with its peak level (0..1).
 */

const CHUNK_SECONDS = 0.02;

class PcmWorklet extends AudioWorkletProcessor {
  constructor() {
    super();
    this.chunkSamples = Math.round(sampleRate * CHUNK_SECONDS);
    this.startChunk();
  }

  startChunk() {
    this.view = new DataView(new ArrayBuffer(this.chunkSamples * 2));
    this.filled = 0;
    this.peak = 0;
  }

  process([channels]) {
    // No channels: the source has ended or is not connected yet. Stay alive for it.
    if (channels.length === 0) return true;
    for (let i = 0; i < channels[0].length; i += 1) {
      let sample = 0;
      for (const channel of channels) sample += channel[i];
      sample /= channels.length;
      this.peak = Math.max(this.peak, Math.abs(sample));
      const scaled = Math.round(sample * 32767);
      this.view.setInt16(this.filled * 2, Math.max(-32768, Math.min(32767, scaled)), true);
      this.filled += 1;
      if (this.filled === this.chunkSamples) this.post();
    }
    return true;
  }

  post() {
    const { buffer } = this.view;
    const message = { pcm: buffer, samples: this.filled, peak: this.peak };
    this.port.postMessage(message, [buffer]);
    this.startChunk();
  }
}

registerProcessor("pcm", PcmWorklet);
