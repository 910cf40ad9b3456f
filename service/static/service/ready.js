/** Pauses before a retry if the server is unreachable, starting or full. */

const POLL_S = 2; // interval between two requests

/** Return true if the server responds and has a free slot for a session. */
async function isFree() {
  try {
    const response = await fetch(new URL("readyz", document.baseURI));
    const { sessions, max_sessions } = await response.json();
    return response.ok && sessions < max_sessions;
  } catch {
    return false; // unreachable, or the response is the page of a proxy or a network
  }
}

/**
 * Wait for `seconds`, or until the server becomes free. If it is free at first, wait for the full time,
 * because it had another reason to reject the request. Rejects if `signal` aborts.
 */
export async function pauseUntilFree(seconds, signal) {
  const end = performance.now() + 1000 * seconds;
  const wasFree = seconds > POLL_S && (await isFree());
  for (;;) {
    signal?.throwIfAborted();
    const left = end - performance.now();
    if (left <= 0) return;
    const step = Math.min(left, 1000 * POLL_S * (0.8 + 0.4 * Math.random())); // not all pages at once
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, step);
      signal?.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
    });
    if (!wasFree && left > step && (await isFree())) return;
  }
}
