/** Tools to correct beats: tap, halve and double the tempo, set the first beat of a bar and the metre. */

import { $ } from "../page.js";
import { store } from "../state/store.js";
import { doubled, halved, MIN_TAPS, tapped, withDownbeatAt, withMetre, withTap } from "./beats.js";
import { changeBeats } from "./commands.js";

/** Return the metre of the menu: a number of beats, or of eighths in groups of three, such as 6/8. */
const chosenMetre = () => {
  const [count, unit] = $("metre").value.split("/").map(Number);
  return unit === 8 ? { beats_per_bar: count / 3, subdivision: 3 } : { beats_per_bar: count || 4, subdivision: 2 };
};

/** Return the most frequent metre of some beats, as in the menu. */
function usualMetre(beats) {
  const counts = new Map();
  for (const { beats_per_bar, subdivision } of beats) {
    const metre = subdivision === 3 ? `${3 * beats_per_bar}/8` : `${beats_per_bar}`;
    counts.set(metre, (counts.get(metre) ?? 0) + 1);
  }
  return [...counts].reduce((best, row) => (row[1] > best[1] ? row : best), ["4", 0])[0];
}

export function beatTools({ editor, player, showStatus }) {
  let taps = [];
  const change = (label, make) => {
    const { beats } = store.get("take");
    editor.run(changeBeats(label, beats, make(beats)));
    show();
  };
  const tap = () => {
    if (!player.playing) return showStatus("Press Play, then tap along with the beat.", true);
    taps = withTap(taps, player.position);
    if (taps.length < MIN_TAPS) return showStatus(`Keep tapping: ${taps.length}`);
    const take = store.get("take");
    const beats = tapped(taps, take.duration, chosenMetre());
    editor.run(changeBeats("Tapped tempo", take.beats, beats), { again: taps.length > MIN_TAPS });
    showStatus(`${Math.round((60 * (taps.length - 1)) / (taps.at(-1) - taps[0]))} beats a minute`);
    show();
  };
  const show = () => {
    const { beats } = store.get("take") ?? { beats: [] };
    for (const id of ["one-here", "beats-half", "beats-double", "metre"]) $(id).disabled = beats.length < 3;
    $("metre").value = usualMetre(beats);
  };
  const press = (id, act) => $(id).addEventListener("click", act);
  press("tap", tap);
  press("one-here", () => change("Downbeat", (beats) => withDownbeatAt(beats, player.position)));
  press("beats-half", () => change("Half the tempo", halved));
  press("beats-double", () => change("Twice the tempo", doubled));
  $("metre").addEventListener("change", () => change("Metre", (beats) => withMetre(beats, chosenMetre())));
  $("roll").addEventListener("keydown", ({ key }) => key === "t" && store.get("editing") && tap());
  store.subscribe(["take", "editing", "selection"], show);
}
