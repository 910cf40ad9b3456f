/** The bar for practising: speed, hands, transposition, metronome, count-in and the names of notes. */

import { move } from "../edit/commands.js";
import { setNaming } from "../notes/pitch.js";
import { $ } from "../page.js";
import { store } from "../state/store.js";
import { handsOf, hasHands } from "./hands.js";

export function practiseBar({ editor, filter }) {
  const play = () => filter.play($("hand").value, handsOf(store.get("take").notes));
  $("hand").addEventListener("change", play);
  $("practise").addEventListener("click", () => store.set({ practising: !store.get("practising") }));
  $("speed").addEventListener("change", () => store.set({ speed: Number($("speed").value) }));
  for (const [id, key] of [["metronome", "metronome"], ["count-in", "countIn"]]) {
    $(id).addEventListener("change", () => store.set({ [key]: $(id).checked }));
  }
  $("naming").addEventListener("change", () => {
    setNaming($("naming").value);
    store.set({ naming: $("naming").value });
  });
  const transpose = (by) => {
    const take = store.get("take");
    editor.run({ ...move(take.notes, 0, by), label: "Transpose", semitones: by }, { quiet: true });
    store.set({ selection: new Set() });
  };
  $("lower").addEventListener("click", () => transpose(-1));
  $("higher").addEventListener("click", () => transpose(1));
  store.subscribe(["take"], () => ($("hand").value = ""));
  store.subscribe(["take", "practising", "selection"], () => {
    const take = store.get("take");
    const shown = Boolean(store.get("practising") && take && !take.live);
    $("practise").setAttribute("aria-pressed", String(shown));
    $("practise-bar").hidden = !shown;
    if (!shown) return;
    const { transposed, beats, notes } = take;
    $("hand").disabled = !notes.some(hasHands);
    if ($("hand").value) play(); // edits have made other notes
    $("transposed").textContent = transposed > 0 ? `+${transposed}` : `${transposed}`;
    $("metronome").disabled = $("count-in").disabled = beats.length < 2;
  });
}
