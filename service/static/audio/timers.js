/**
 * Timers that keep time in a hidden tab: browsers slow a page's own down to one a second there, but
 * not those of a worker.
 */

const worker = new Worker(new URL("./timers-worker.js", import.meta.url));
const acts = new Map(); // timer -> what it does
let latest = 0;

worker.onmessage = ({ data: timer }) => {
  const act = acts.get(timer);
  acts.delete(timer);
  act?.();
};

/** Calls `act` once, after `seconds`; returns a timer for `cancel`. */
export function after(seconds, act) {
  latest += 1;
  acts.set(latest, act);
  worker.postMessage({ timer: latest, milliseconds: 1000 * seconds });
  return latest;
}

export const cancel = (timer) => acts.delete(timer);
