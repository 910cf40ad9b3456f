/**
 * What a look-ahead costs in accuracy, from the figures of the model's card (`GET /info`): onset
 * F1 on each set of recordings, at the look-aheads that were measured and in between.
 */

import { authorization } from "./access.js";
import { countText } from "./pitch.js";

export async function fetchCard() {
  const response = await fetch(new URL("info", document.baseURI), { headers: authorization() });
  return response.ok ? (await response.json()).card : {};
}

/** [{name, f1, lost}] for each set of recordings; `lost` against the best look-ahead. */
export function accuracyAt(card, lookaheadMs) {
  return Object.entries(card.recordings ?? {}).map(([name, reports]) => {
    const measured = reports
      .map((report) => [report.lookahead_ms, report.mean.onset_f1])
      .sort(([a], [b]) => a - b);
    const f1 = between(measured, lookaheadMs);
    return { name, f1, lost: Math.max(...measured.map(([, value]) => value)) - f1 };
  });
}

/** In words; "" where the card has no figures. */
export function accuracyText(card, lookaheadMs) {
  const sets = accuracyAt(card, lookaheadMs);
  if (sets.length === 0) return "";
  const found = sets.map(({ name, f1 }) => `${name} ${f1.toFixed(2)}`).join(", ");
  const points = Math.round(Math.max(...sets.map(({ lost }) => 100 * lost)));
  const cost = points
    ? `up to ${countText(points, "point")} of 100 below the best look-ahead`
    : "as good as the best look-ahead";
  return `Right notes (onset F1): ${found}; ${cost}.`;
}

/** Straight between the measured points, level beyond them. */
function between(points, x) {
  const after = points.findIndex(([at]) => at >= x);
  if (after === -1) return points.at(-1)[1];
  if (after === 0) return points[0][1];
  const [[x0, y0], [x1, y1]] = points.slice(after - 1, after + 1);
  return y0 + ((x - x0) / (x1 - x0)) * (y1 - y0);
}
