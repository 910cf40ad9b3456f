/**
 * Runs on the audio thread: makes one channel of the input's and posts it as 16-bit little-endian
 * PCM in chunks of about 20 ms, each with its peak level (0..1).
 *
 * Unless a channel is chosen ({channel} on the port, 0 for the first, -1 for none in particular),
 * all are mixed but silent ones, which would only halve the others; of two that cancel each other
 * out the louder one is taken alone.
 */

const CHUNK_SECONDS = 0.02;
const SETTLING = 0.1; // share of each chunk in the channels' mean power: about 0.2 s
const INAUDIBLE = 1e-8; // power of -80 dB: nothing to judge the channels by
const SILENT = 1e-4; // power beside the loudest channel's: -40 dB
const CANCELLED = 0.05; // power of a mix beside its channels' mean
const FADE_SECONDS = 0.01;

class PcmWorklet extends AudioWorkletProcessor {
  constructor() {
    super();
    this.chunkSamples = Math.round(sampleRate * CHUNK_SECONDS);
    this.fade = 1 - Math.exp(-1 / (FADE_SECONDS * sampleRate));
    this.channel = -1;
    this.shares = []; // of each channel in the mix, on their way to the goals
    this.goals = [];
    this.why = ""; // one channel is taken alone: "silent" or "cancelled"
    this.port.onmessage = ({ data }) => {
      this.channel = data.channel;
      this.choose();
    };
    this.startChunk();
  }

  startChunk() {
    this.view = new DataView(new ArrayBuffer(this.chunkSamples * 2));
    this.filled = 0;
    this.peak = 0;
  }

  process([channels]) {
    // No channels: the source has ended or is not connected yet. Stay alive for it.
    const count = channels.length;
    if (count === 0) return true;
    if (count !== this.goals.length) this.begin(count);
    for (let i = 0; i < channels[0].length; i += 1) {
      let sample = 0;
      for (let c = 0; c < count; c += 1) {
        const value = channels[c][i];
        this.sums[c] += value;
        this.squares[c] += value * value;
        this.shares[c] += (this.goals[c] - this.shares[c]) * this.fade;
        sample += value * this.shares[c];
      }
      if (count === 2) this.product += channels[0][i] * channels[1][i];
      this.peak = Math.max(this.peak, Math.abs(sample));
      const scaled = Math.round(sample * 32767);
      this.view.setInt16(this.filled * 2, Math.max(-32768, Math.min(32767, scaled)), true);
      this.filled += 1;
      if (this.filled === this.chunkSamples) this.post();
    }
    return true;
  }

  begin(count) {
    const zeros = () => new Array(count).fill(0);
    this.sums = zeros(); // in this chunk
    this.squares = zeros();
    this.powers = zeros(); // their running means
    this.product = this.common = 0; // the same of the first two channels' product
    this.goals = zeros();
    this.choose();
    this.shares = [...this.goals];
  }

  post() {
    // Without what is constant: an input's offset is no sound.
    const offset = (a, b) => (this.sums[a] * this.sums[b]) / this.chunkSamples;
    const { squares } = this;
    this.powers = this.powers.map((p, c) => this.settled(p, squares[c] - offset(c, c)));
    if (squares.length === 2) {
      this.common = this.settled(this.common, this.product - offset(0, 1));
    }
    this.sums.fill(0);
    this.squares.fill(0);
    this.product = 0;
    this.choose();
    const { buffer } = this.view;
    const { filled: samples, peak, why, goals } = this;
    const mix = { channels: goals.length, why, alone: goals.indexOf(1) };
    const message = { pcm: buffer, samples, peak, ...mix };
    this.port.postMessage(message, [buffer]);
    this.startChunk();
  }

  settled(mean, sum) {
    return mean + (sum / this.chunkSamples - mean) * SETTLING;
  }

  choose() {
    const { goals, powers } = this;
    const loudest = Math.max(...powers);
    const alone = (channel) => goals.fill(0).fill(1, channel, channel + 1);
    this.why = "";
    if (this.channel >= 0 && this.channel < goals.length) return alone(this.channel);
    if (loudest < INAUDIBLE) return goals.fill(1 / goals.length);
    const heard = powers.map((power) => power > SILENT * loudest);
    const count = heard.filter(Boolean).length;
    const sum = powers.reduce((a, b) => a + b, 0);
    if (count === 2 && goals.length === 2 && (sum + 2 * this.common) / 4 < (CANCELLED * sum) / 2) {
      this.why = "cancelled";
      return alone(powers.indexOf(loudest));
    }
    if (count < goals.length) this.why = "silent";
    return heard.forEach((isHeard, c) => (goals[c] = isHeard ? 1 / count : 0));
  }
}

registerProcessor("pcm", PcmWorklet);
