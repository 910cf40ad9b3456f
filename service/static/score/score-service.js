/** Requests a score from the service: an object with its SVG, or a file. */

import { request } from "../service/access.js";
import { BUSY, problemText, retrySeconds } from "../service/problem.js";

/**
 * `beats`: the beats that the score must use, if any; `live`: true if the take still grows. If the service
 * rejects the request, the Error has `final`, true if a retry would fail again, and otherwise `seconds`, the
 * pause before a retry.
 * @param {{notes: object[], pedal: object[], title: string, beats?: object[], live?: boolean, form: string, width?: number, signal?: AbortSignal}} request
 */
export async function fetchScore({ notes, pedal, title, beats, live, form, width, signal }) {
  const query = new URLSearchParams({ form, ...(width && { width: String(width) }) });
  const response = await request(`score?${query}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ notes, pedal, title, beats, live }),
    signal,
  }).catch((cause) => {
    if (signal?.aborted) throw cause;
    throw new Error("The server cannot be reached.", { cause });
  });
  if (!response.ok) {
    const busy = BUSY.includes(response.status);
    const about = busy ? { seconds: retrySeconds(response) } : { final: true };
    throw Object.assign(new Error(await problemText(response)), about);
  }
  return form === "svg" ? response.json() : response.blob();
}
