/**
 * Runs on the audio thread. Mixes the input's channels to one and posts it as 16-bit little-endian PCM
 * in chunks of about 20 ms, each with its peak level (0..1) and the state of the mix (see `Downmix`).
 * A message `{channel}` on the port chooses a channel.
 */

import { Downmix } from "./downmix.js";

const CHUNK_SECONDS = 0.02;

class PcmWorklet extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.chunkSamples = Math.round(sampleRate * CHUNK_SECONDS);
    this.downmix = new Downmix(sampleRate, processorOptions?.channel);
    this.channels = 1;
    this.port.onmessage = ({ data }) => (this.downmix.channel = data.channel);
    this.startChunk();
  }

  startChunk() {
    this.view = new DataView(new ArrayBuffer(this.chunkSamples * 2));
    this.samples = 0;
    this.peak = 0;
  }

  process([channels], [output]) {
    // The input has no channels if no source is connected, and in Firefox also while the source is
    // silent. Send silence then.
    this.channels = channels.length || this.channels;
    const nothing = new Array(this.channels).fill(output[0]);
    for (const sample of this.downmix.mix(channels.length ? channels : nothing)) {
      this.peak = Math.max(this.peak, Math.abs(sample));
      const scaled = Math.round(sample * 32767);
      this.view.setInt16(this.samples * 2, Math.max(-32768, Math.min(32767, scaled)), true);
      this.samples += 1;
      if (this.samples === this.chunkSamples) this.post();
    }
    return true;
  }

  post() {
    const { samples, peak, channels, downmix } = this;
    const { buffer } = this.view;
    const { onlyChannel, onlyReason } = downmix;
    this.port.postMessage({ pcm: buffer, samples, peak, channels, onlyChannel, onlyReason }, [buffer]);
    this.startChunk();
  }
}

registerProcessor("pcm", PcmWorklet);
