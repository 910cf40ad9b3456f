/**
 * Writes the beats of a take as the tempo and bars of a MIDI file. The times of notes do not change.
 *
 * `beats`: [{time_s, place, beats_per_bar, subdivision}] of the service, in order. Missing beats are
 * inserted. If there are none, the tempo is 120 beats per minute, without bars.
 */

export const TICKS_PER_BEAT = 480; // a quarter
const USUAL_S = 0.5;
// Earlier beats are dropped, because the beat from 0 s to them would be too short.
const MIN_FIRST_BEAT_S = 0.15;
const MAX_PERIOD_S = 10; // longer beats are divided, because a tempo event has at most 16.8 s per quarter

/** Return {tickOf: function from seconds to ticks, events: [{tick, order, bytes}]}. */
export function tempoOf(beats) {
  const rows = filled(beats.filter(({ time_s }) => time_s >= MIN_FIRST_BEAT_S));
  const compound = rows[0]?.subdivision === 3;
  const perBeat = TICKS_PER_BEAT * (compound ? 1.5 : 1);
  const times = rows.length ? rows.map(({ time_s }) => time_s) : [0, USUAL_S];
  times.push(2 * times.at(-1) - times.at(-2));
  const events = [];
  const add = (tick, ...bytes) => events.push({ tick, order: 0, bytes: [0xff, ...bytes] });
  for (const [place, time] of times.slice(0, -1).entries()) {
    const us = Math.round(((times[place + 1] - time) * 1e6 * TICKS_PER_BEAT) / perBeat);
    add(place * perBeat, 0x51, 3, us >> 16, (us >> 8) & 0xff, us & 0xff);
  }
  let size = 0;
  for (const [first, count] of barsOf(rows)) {
    if (count === size) continue;
    size = count;
    add(first * perBeat, 0x58, 4, compound ? 3 * size : size, compound ? 3 : 2, 24, 8);
  }
  const tickOf = (seconds) => {
    let low = 0;
    let high = times.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= seconds) low = middle;
      else high = middle - 1;
    }
    const share = (seconds - times[low]) / (times[low + 1] - times[low]);
    return Math.round((low + share) * perBeat);
  };
  return { tickOf, events };
}

/**
 * Insert the missing beats, from 0 s on. As in scores, a longer beat that continues the count of its
 * bar, or whose tempo lasts, is not a gap.
 */
function filled(beats) {
  if (beats.length < 2) return [];
  const rows = [];
  const fill = (from, to, next, steps) => {
    for (let step = 0; step < steps; step += 1) {
      const place = next.place - steps + step;
      const bar = next.beats_per_bar;
      const time_s = from + ((to - from) * step) / steps;
      rows.push({ ...next, time_s, place: ((place % bar) + bar) % bar });
    }
  };
  const stepsOf = (gap, period) => Math.max(1, Math.round(gap / period));
  let period = beats[1].time_s - beats[0].time_s;
  fill(0, beats[0].time_s, beats[0], stepsOf(beats[0].time_s, Math.min(period, MAX_PERIOD_S)));
  for (const [at, beat] of beats.slice(0, -1).entries()) {
    const next = beats[at + 1];
    const gap = next.time_s - beat.time_s;
    const usual = Math.max(period, (beats[at + 2]?.time_s ?? 0) - next.time_s);
    const continues = next.place === (beat.place + 1) % beat.beats_per_bar;
    const isGap = !continues || gap >= (beat.beats_per_bar + 0.5) * usual;
    const steps = Math.max(isGap ? stepsOf(gap, usual) : 1, Math.ceil(gap / MAX_PERIOD_S));
    const last = rows.length;
    fill(beat.time_s, next.time_s, next, steps);
    rows[last].place = beat.place;
    period = gap / steps;
  }
  rows.push(beats.at(-1));
  return rows;
}

/** Return [first beat, number of beats] of each bar. */
function barsOf(rows) {
  const downs = rows.flatMap(({ place }, at) => (place === 0 ? [at] : []));
  if (!downs.length) return [];
  if (downs[0] > 0) downs.unshift(0);
  return downs.map((first, at) => {
    const whole = rows[first].beats_per_bar;
    return [first, (downs[at + 1] ?? first + whole) - first];
  });
}
