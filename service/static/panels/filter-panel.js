/** The two sliders of the note filter. They act immediately on all views of notes. */

import { $ } from "../page.js";
export function filterPanel(filter) {
  const apply = () => {
    const percent = Number($("least-confidence").value);
    const milliseconds = Number($("least-length").value);
    $("least-confidence-value").textContent = percent ? `${percent} %` : "all";
    $("least-length-value").textContent = milliseconds ? `${milliseconds} ms` : "all";
    filter.set({ confidence: percent / 100, seconds: milliseconds / 1000 });
  };
  $("least-confidence").addEventListener("input", apply);
  $("least-length").addEventListener("input", apply);
  apply();
}
