/** Asks the service for a score: an object with its SVG, or a file. */

import { askForKey, authorization } from "../service/access.js";
import { problemText } from "../service/problem.js";

const UNAUTHORIZED = 401;

/**
 * `beats`: those that were found while it was played, if they shall stay as they are.
 * @param {{notes: object[], title: string, beats?: object[], form: string, width?: number, signal?: AbortSignal}} request
 */
export async function fetchScore({ notes, title, beats, form, width, signal }) {
  const url = new URL("score", document.baseURI);
  url.searchParams.set("form", form);
  if (width) url.searchParams.set("width", String(width));
  const response = await fetch(url, {
    method: "POST",
    headers: { ...authorization(), "Content-Type": "application/json" },
    body: JSON.stringify({ notes, title, beats }),
    signal,
  });
  if (response.status === UNAUTHORIZED && (await askForKey())) {
    return fetchScore({ notes, title, beats, form, width, signal });
  }
  if (!response.ok) throw new Error(await problemText(response));
  return form === "svg" ? response.json() : response.blob();
}
