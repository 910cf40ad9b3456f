/** The practice bar: speed, hands, transposition, metronome, count-in and names of notes. */

import { move } from "../edit/commands.js";
import { hasHands } from "../notes/instruments.js";
import { setNaming } from "../notes/pitch.js";
import { $ } from "../page.js";
import { store } from "../state/store.js";
import { handsOf } from "./hands.js";

export function practiseBar({ editor, filter }) {
  /** The settings apply while the bar is shown. */
  const apply = () => {
    const take = store.get("take");
    const shown = store.get("practising") && !take.live;
    $("practise").setAttribute("aria-pressed", String(shown));
    $("practise-bar").hidden = !shown;
    $("hand").disabled = !take.notes.some(hasHands);
    $("transposed").textContent = take.transposed > 0 ? `+${take.transposed}` : take.transposed;
    $("metronome").disabled = $("count-in").disabled = take.beats.length < 2;
    const hand = shown ? $("hand").value : "";
    if (hand || filter.hand) filter.play(hand, handsOf(take.notes)); // edits replace notes
    store.set({
      speed: shown ? Number($("speed").value) : 1,
      metronome: shown && $("metronome").checked,
      countIn: shown && $("count-in").checked,
    });
  };
  for (const id of ["speed", "hand", "metronome", "count-in"]) $(id).addEventListener("change", apply);
  $("practise").addEventListener("click", () => store.set({ practising: !store.get("practising") }));
  $("naming").addEventListener("change", () => {
    setNaming($("naming").value);
    store.set({ naming: $("naming").value });
  });
  const transpose = (by) => {
    const command = move(store.get("take").notes, 0, by);
    const isInRange = command.pairs.some(([before, after]) => before.pitch !== after.pitch);
    if (!isInRange) return;
    editor.run({ ...command, label: "Transpose", semitones: by }, { quiet: true });
    store.set({ selection: new Set() });
  };
  $("lower").addEventListener("click", () => transpose(-1));
  $("higher").addEventListener("click", () => transpose(1));
  store.subscribe(["take"], () => ($("hand").value = ""));
  store.subscribe(["take", "practising", "selection"], apply);
}
