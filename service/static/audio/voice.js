/**
 * A soft note like that of a struck string: a few harmonics through a closing low-pass filter. High
 * notes decay faster, and notes of high velocity are louder and brighter.
 */

import { frequencyHz } from "../notes/pitch.js";

const HARMONICS = [0, 1, 0.42, 0.26, 0.12, 0.09, 0.05, 0.03, 0.015];
const ATTACK_S = 0.004;
const RELEASE_S = 0.09; // time constant after the note's end
const MIDDLE_C_DECAY_S = 1.5; // time constant at C4
const PEAK_GAIN = 0.22;

let wave = null; // PeriodicWave of the player's context

/** Schedule a note from `when` to `until` (in seconds of the context). */
export function strike(context, destination, { pitch, velocity }, when, until) {
  wave ??= context.createPeriodicWave(new Float32Array(HARMONICS.length), Float32Array.from(HARMONICS));
  const force = velocity / 127;
  const hertz = frequencyHz(pitch);
  const decay = MIDDLE_C_DECAY_S * 2 ** ((60 - pitch) / 20);

  const filter = context.createBiquadFilter();
  filter.type = "lowpass";
  filter.Q.value = 0.3;
  const bright = Math.min(14_000, hertz * (3 + 9 * force));
  filter.frequency.setValueAtTime(bright, when);
  filter.frequency.setTargetAtTime(Math.min(bright, hertz * 2.2), when, decay * 0.5);

  const gain = context.createGain();
  gain.gain.setValueAtTime(0, when);
  gain.gain.linearRampToValueAtTime(PEAK_GAIN * force ** 1.5 + 0.01, when + ATTACK_S);
  gain.gain.setTargetAtTime(0, when + ATTACK_S, decay);
  const release = Math.max(until, when + 0.03);
  gain.gain.setTargetAtTime(0, release, Math.min(RELEASE_S, decay));

  const stop = release + RELEASE_S * 7;
  for (const cents of [-2, 2]) {
    const string = context.createOscillator();
    string.setPeriodicWave(wave);
    string.frequency.value = hertz;
    string.detune.value = cents;
    string.connect(filter);
    string.start(when);
    string.stop(stop);
  }
  filter.connect(gain).connect(destination);
}

/** Reverberation of a small, bright room: decaying noise. */
export function room(context) {
  const seconds = 1.4;
  const length = Math.round(context.sampleRate * seconds);
  const impulse = context.createBuffer(2, length, context.sampleRate);
  for (const channel of [0, 1]) {
    const data = impulse.getChannelData(channel);
    for (let i = 0; i < length; i += 1) {
      data[i] = (Math.random() * 2 - 1) * Math.exp((-6 * i) / length);
    }
  }
  const convolver = context.createConvolver();
  convolver.buffer = impulse;
  return convolver;
}
