/** A function that calls `act` once, `waitMs()` later, for all its calls until then. */
export function coalesce(act, waitMs) {
  let pending = false;
  return () => {
    if (pending) return;
    pending = true;
    setTimeout(() => {
      pending = false;
      act();
    }, waitMs());
  };
}
