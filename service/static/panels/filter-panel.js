/** The two sliders that say which notes count; they act at once on all that shows notes. */

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
