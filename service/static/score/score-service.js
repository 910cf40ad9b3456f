/** Requests a score from the service: an object with its SVG, or a file. */

import { request } from "../service/access.js";
import { BUSY, problemText } from "../service/problem.js";

/**
 * `beats`: the beats that the score must use, if any.
 * @param {{notes: object[], pedal: object[], title: string, beats?: object[], form: string, width?: number, signal?: AbortSignal}} request
 */
export async function fetchScore({ notes, pedal, title, beats, form, width, signal }) {
  const query = new URLSearchParams({ form, ...(width && { width: String(width) }) });
  const response = await request(`score?${query}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ notes, pedal, title, beats }),
    signal,
  });
  if (!response.ok) {
    const final = !BUSY.includes(response.status); // true if a retry would fail again
    throw Object.assign(new Error(await problemText(response)), { final });
  }
  return form === "svg" ? response.json() : response.blob();
}
