/** Schedule a click of the metronome at a time of the context. It is higher at the start of a bar. */

const LENGTH_S = 0.05;

export function clickAt(context, destination, when, accent) {
  const tone = context.createOscillator();
  const level = context.createGain();
  tone.frequency.value = accent ? 1800 : 1200;
  level.gain.setValueAtTime(0.2, when);
  level.gain.exponentialRampToValueAtTime(0.001, when + LENGTH_S);
  tone.connect(level).connect(destination);
  tone.start(when);
  tone.stop(when + LENGTH_S);
}
