/**
 * Timers that are accurate in a hidden tab. There, browsers slow down the timers of a page to one per
 * second, but not the timers of a worker.
 */

const worker = new Worker(new URL("./timers-worker.js", import.meta.url));
const acts = new Map(); // timer -> function to call
let latest = 0;

worker.onmessage = ({ data: timer }) => {
  const act = acts.get(timer);
  acts.delete(timer);
  act?.();
};

/** Call `act` once, after `seconds`. Return a timer for `cancel`. */
export function after(seconds, act) {
  latest += 1;
  acts.set(latest, act);
  worker.postMessage({ timer: latest, milliseconds: 1000 * seconds });
  return latest;
}

export const cancel = (timer) => acts.delete(timer);
