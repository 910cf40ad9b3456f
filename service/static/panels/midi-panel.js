/** The choice of a MIDI output. The browser asks for permission only when the list is opened. */

import { MidiOut } from "../notes/midi-out.js";
import { $ } from "../page.js";

export function midiPanel(midi, showStatus, choices) {
  if (!MidiOut.supported) {
    $("midi-connect").disabled = true;
    $("midi-hint").textContent = "This browser does not support MIDI; Chrome, Edge and Firefox do.";
    return;
  }
  const list = () => {
    const { ports, port } = midi;
    const options = ports.map(({ id, name }) => new Option(name, id, false, id === port));
    $("midi-port").replaceChildren(new Option("Off", "", false, port === ""), ...options);
    $("midi-connect").hidden = true;
    $("midi-port").hidden = false;
    $("midi-hint").textContent = ports.length
      ? "Each instrument has a channel, live and on playback."
      : "No MIDI port found. Connect a synthesiser, or open a virtual port for your DAW.";
  };
  $("midi-connect").addEventListener("click", () =>
    midi.open().then(list, (error) => showStatus(error.message, true)),
  );
  $("midi-port").addEventListener("change", () => {
    midi.choose($("midi-port").value);
    // Notes for a synthesiser should be early. A running take does not change.
    if (!$("pace").disabled) choices.fast = $("midi-port").value !== "";
  });
  midi.addEventListener("ports", list);
}
