/**
 * Mixes several channels to one in blocks of 100 ms. The service's `audio/pcm.py` uses the same rules
 * and explains them.
 */

const BLOCKS_A_SECOND = 10;
const MIN_LOUD_POWER = 1e-8; // minimum power of the loudest channel for which a block changes the mix
const AUDIBLE = 1e-6;
const MAX_SILENT = 1e-5; // power relative to the loudest channel below which a channel is silent
const MIN_SOUNDING = 1e-4; // power relative to the loudest channel from which a channel sounds
const CANCELLED = 0.06; // power of the sum, relative to all channels, below which they cancel out
const PRESENT = 0.3;

export class Downmix {
  /** The only channel to use, counted from 0, from the next block on; -1: choose automatically. */
  channel;
  /** Reason for using one channel only: the others are "silent", or all are "cancelled". Else "". */
  onlyReason = "";
  onlyChannel = -1;
  #size;
  #within = 0;
  #weights = [];
  #before = [];
  #sums; // of the samples of each channel and of their sum, in this block
  #squares;

  constructor(rate, channel = -1) {
    this.#size = Math.floor(rate / BLOCKS_A_SECOND);
    this.channel = channel;
  }

  /** Mix arrays of equal length, one for each channel, to one. */
  mix(channels) {
    const count = channels.length;
    if (count !== this.#weights.length) this.#begin(count);
    const mono = new Float32Array(channels[0].length);
    for (let i = 0; i < mono.length; i += 1) {
      const moved = this.#within / this.#size;
      let sum = 0;
      for (let c = 0; c < count; c += 1) {
        const value = channels[c][i];
        mono[i] += value * (this.#before[c] + moved * (this.#weights[c] - this.#before[c]));
        this.#measure(c, value);
        sum += value;
      }
      this.#measure(count, sum);
      this.#within += 1;
      if (this.#within === this.#size) this.#choose();
    }
    return mono;
  }

  #begin(count) {
    this.onlyReason = "";
    this.#weights = this.#chosen(count) ?? new Array(count).fill(1 / count);
    this.#before = this.#weights;
    this.#clear();
  }

  #clear() {
    this.#within = 0;
    this.#sums = new Float64Array(this.#weights.length + 1);
    this.#squares = new Float64Array(this.#weights.length + 1);
  }

  #measure(which, value) {
    this.#sums[which] += value;
    this.#squares[which] += value * value;
  }

  #choose() {
    const powers = [...this.#squares].map(
      (square, c) => (square - this.#sums[c] ** 2 / this.#size) / this.#size,
    );
    this.#before = this.#weights;
    this.#weights = this.#chosen(this.#weights.length) ?? this.#next(powers.pop(), powers);
    this.#clear();
  }

  /** Weights that use only the chosen channel; null if none is chosen. */
  #chosen(count) {
    if (!(this.channel >= 0 && this.channel < count)) return null;
    this.onlyReason = "";
    return only(this.channel, count);
  }

  #next(ofSum, powers) {
    const count = powers.length;
    const loudest = Math.max(...powers);
    if (loudest < MIN_LOUD_POWER) return this.#weights;
    const isAlone = this.#weights.includes(0);
    const total = powers.reduce((a, b) => a + b, 0);
    if (ofSum < (isAlone ? PRESENT : CANCELLED) * total) {
      if (isAlone) return this.#weights;
      this.onlyChannel = powers.indexOf(loudest);
      this.onlyReason = "cancelled";
      return only(this.onlyChannel, count);
    }
    const number = (judge) => powers.filter(judge).length;
    const least = Math.max(1, number((p) => p >= AUDIBLE && p >= MIN_SOUNDING * loudest));
    const most = number((p) => p >= AUDIBLE || p >= MAX_SILENT * loudest);
    const before = isAlone ? count : Math.round(1 / this.#weights[0]);
    const sounding = Math.min(Math.max(before, least), most);
    this.onlyChannel = powers.indexOf(loudest);
    this.onlyReason = sounding === 1 && count > 1 ? "silent" : "";
    return new Array(count).fill(1 / sounding);
  }
}

const only = (channel, count) => new Array(count).fill(0).fill(1, channel, channel + 1);
