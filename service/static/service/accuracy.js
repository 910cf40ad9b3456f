/**
 * The accuracy at a look-ahead, from the model's card (`GET /info`): onset F1 on each set of test
 * recordings, else average precision of onsets in validation, at the look-aheads that were measured
 * and in between.
 */

import { authorization } from "./access.js";

const VALIDATION = /^onset_ap_(\d+)ms$/;
// What was recorded in the sets that the cards call by their names in the literature.
const SETS = { maps: "piano", omaps: "stage piano" };

export async function fetchCard() {
  const response = await fetch(new URL("info", document.baseURI), { headers: authorization() });
  return response.ok ? (await response.json()).card : {};
}

/** The figures of a card: their name, and for each set of sounds [[look-ahead in ms, value], ...]. */
function figuresOf({ recordings = {}, validation = {} }) {
  const measured = Object.entries(recordings).map(([name, reports]) => [
    SETS[name] ?? name,
    reports.map((report) => [report.lookahead_ms, report.mean.onset_f1]),
  ]);
  if (measured.length) return { figure: "onset F1", sets: measured };
  // Weights whose figures on recordings are not measured yet.
  const points = Object.entries(validation)
    .map(([name, value]) => [Number(VALIDATION.exec(name)?.[1]), value])
    .filter(([lookahead]) => lookahead);
  return { figure: "onset AP", sets: points.length ? [["synthetic pieces", points]] : [] };
}

/** In words; "" where the card has no figures. */
export function accuracyText(card, lookaheadMs) {
  const { figure, sets } = figuresOf(card);
  if (sets.length === 0) return "";
  const found = [];
  let lost = 0; // against the best look-ahead, of the set that loses most
  for (const [name, points] of sets) {
    points.sort(([a], [b]) => a - b);
    const value = between(points, lookaheadMs);
    lost = Math.max(lost, ...points.map(([, best]) => best - value));
    found.push(`${name} ${value.toFixed(2)}`);
  }
  const whole = Math.round(100 * lost);
  const cost = whole ? `another look-ahead gains up to ${whole / 100}` : "no look-ahead gains more";
  return `In tests (${figure}, 1 is perfect): ${found.join(", ")}; ${cost}.`;
}

/** Straight between the measured points, level beyond them. */
function between(points, x) {
  const after = points.findIndex(([at]) => at >= x);
  if (after === -1) return points.at(-1)[1];
  if (after === 0) return points[0][1];
  const [[x0, y0], [x1, y1]] = points.slice(after - 1, after + 1);
  return y0 + ((x - x0) / (x1 - x0)) * (y1 - y0);
}
