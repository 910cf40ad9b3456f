/**
 * Corrections of beats. The functions return new arrays of beats, in order of time. A beat is {time_s,
 * place, beats_per_bar, subdivision}. The times of notes do not change.
 */

import { store } from "../state/store.js";

const TAP_PAUSE_S = 2.5; // after a longer pause, counting restarts
export const MIN_TAPS = 3;
const EARLY = 0.1; // in beats: an onset at most this much before a beat belongs to it, as in the score

const numbered = (beats, first, metre = {}) =>
  beats.map((beat, index) => {
    const perBar = metre.beats_per_bar ?? beat.beats_per_bar;
    return { ...beat, ...metre, place: (((index - first) % perBar) + perBar) % perBar };
  });

export const nearest = (beats, time) =>
  beats.reduce((best, { time_s }, at) =>
    Math.abs(time_s - time) < Math.abs(beats[best].time_s - time) ? at : best, 0);

/** Let a bar start at the beat nearest to `time`. */
export const withDownbeatAt = (beats, time) => numbered(beats, nearest(beats, time));

/** Set the metre {beats_per_bar, subdivision}. The first bar line does not move. */
export const withMetre = (beats, metre) =>
  numbered(beats, Math.max(0, beats.findIndex(({ place }) => place === 0)), metre);

/** Double the tempo: insert a beat between every two beats. */
export function doubled(beats) {
  const first = 2 * Math.max(0, beats.findIndex(({ place }) => place === 0));
  const between = beats.flatMap((beat, at) => {
    const next = beats[at + 1];
    return next ? [beat, { ...beat, time_s: (beat.time_s + next.time_s) / 2 }] : [beat];
  });
  return numbered(between, first);
}

/** Halve the tempo: use every second beat, counted from the first downbeat. */
export function halved(beats) {
  const first = Math.max(0, beats.findIndex(({ place }) => place === 0));
  const kept = beats.filter((_, at) => (at - first) % 2 === 0);
  return numbered(kept, Math.floor(first / 2));
}

/** Move a beat. The other beats of the adjacent bars are then spaced evenly. */
export function dragged(beats, index, time) {
  const before = beats.findLastIndex(({ place }, at) => at < index && place === 0);
  const after = beats.findIndex(({ place }, at) => at > index && place === 0);
  const from = Math.max(0, before);
  const to = after < 0 ? beats.length - 1 : after;
  const low = beats[from].time_s;
  const high = beats[to].time_s;
  if (index > from && time <= low + 0.05 * (index - from)) return beats;
  if (index < to && time >= high - 0.05 * (to - index)) return beats;
  return beats.map((beat, at) => {
    if (at < from || at > to || at === from && index !== from || at === to && index !== to) return beat;
    if (at === index) return { ...beat, time_s: time };
    const [start, end, origin, span] =
      at < index ? [low, time, from, index - from] : [time, high, index, to - index];
    return { ...beat, time_s: start + ((end - start) * (at - origin)) / span };
  });
}

/** Return beats at the tempo of the taps. They start and end with the take. `taps`: times in seconds. */
export function tapped(taps, duration, metre) {
  const period = (taps.at(-1) - taps[0]) / (taps.length - 1);
  const lead = Math.floor(taps[0] / period);
  const count = Math.floor((duration - taps[0]) / period) + 1;
  const beats = Array.from({ length: lead + count }, (_, at) => ({ time_s: taps[0] + (at - lead) * period }));
  return numbered(beats, lead, metre);
}

/** Add a tap. After a pause, or a jump back in time, the list starts again. */
export const withTap = (taps, time) =>
  taps.length && Math.abs(time - taps.at(-1)) < TAP_PAUSE_S && time > taps.at(-1) ? [...taps, time] : [time];

/** Return the position on the grid of beats nearest to `time`, and the length of a step there. */
export function onGrid(beats, time) {
  if (beats.length < 2) return { time, step: 0.05 };
  const at = Math.max(0, Math.min(beats.length - 2, beats.findLastIndex(({ time_s }) => time_s <= time)));
  const steps = beats[at].subdivision === 3 ? 6 : 4; // sixteenths of a dotted quarter or a quarter
  const step = (beats[at + 1].time_s - beats[at].time_s) / steps;
  const snapped = beats[at].time_s + Math.round((time - beats[at].time_s) / step) * step;
  return { time: Math.max(0, snapped), step };
}

/** If snapping is on, move {start, end} to the nearest bar lines, unless it would become empty. */
export function inBars(beats, start, end) {
  const bars = beats.filter(({ place }) => place === 0);
  if (bars.length < 2 || !store.get("snap")) return { start, end };
  const bar = (time) => bars[nearest(bars, time)].time_s;
  return bar(end) > bar(start) ? { start: bar(start), end: bar(end) } : { start, end };
}

/** Number of the bar before the first bar line, as in the score: bar 1 is the first complete bar from `onset` on. */
export function barBefore(beats, onset) {
  const line = beats.findIndex(({ place }) => place === 0);
  if (line < 0 || beats.length < 2) return 0;
  const at = Math.max(0, Math.min(beats.length - 2, beats.findLastIndex(({ time_s }) => time_s <= onset)));
  const [from, to] = [beats[at].time_s, beats[at + 1].time_s];
  const beat = Math.floor(at + (onset - from) / (to - from) + EARLY);
  return Math.floor((line - beat) / beats[line].beats_per_bar);
}
