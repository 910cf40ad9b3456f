/**
 * A short piece for people without a microphone, played by the page's own synthesiser: heard from
 * the loudspeakers and transcribed live, as an instrument before a microphone would be.
 *
 * The figure is that of Bach's Prelude BWV 846: of each chord the two low notes are held, the
 * three others run above them twice.
 */

import { PcmSource } from "./pcm-source.js";
import { strike } from "./voice.js";

const CHORDS = [
  [60, 64, 67, 72, 76],
  [60, 62, 69, 74, 77],
  [59, 62, 67, 74, 77],
  [60, 64, 67, 72, 76],
  [60, 64, 69, 76, 81],
  [60, 62, 66, 69, 74],
  [59, 62, 67, 74, 79],
  [59, 60, 64, 67, 72],
];
const LAST_CHORD = [48, 60, 64, 67, 72];
const STEP_S = 0.19; // a sixteenth
const LEAD_S = 0.4;
const TAIL_S = 1.6;
const STEPS = [0, 1, 2, 3, 4, 2, 3, 4]; // of a chord's notes in half a bar

/** The piece as notes: pitch, velocity, onset and offset in seconds. */
function demoNotes() {
  const notes = [];
  let time = LEAD_S;
  for (const chord of CHORDS) {
    for (let half = 0; half < 2; half += 1) {
      STEPS.forEach((which, step) => {
        const held = which < 2 ? STEPS.length - step : 1;
        const velocity = [78, 66, 58, 62, 72][which] + (half ? -6 : 0);
        const onset = time + step * STEP_S;
        notes.push({ pitch: chord[which], velocity, onset, offset: onset + held * STEP_S * 0.95 });
      });
      time += STEPS.length * STEP_S;
    }
  }
  for (const pitch of LAST_CHORD) {
    notes.push({ pitch, velocity: 70, onset: time, offset: time + TAIL_S });
  }
  return notes;
}

/** An AudioBuffer of one channel. */
async function renderDemo(rate) {
  const notes = demoNotes();
  const seconds = notes.at(-1).offset + TAIL_S / 2;
  const context = new OfflineAudioContext(1, Math.ceil(seconds * rate), rate);
  for (const note of notes) strike(context, context.destination, note, note.onset, note.offset);
  return context.startRendering();
}

export class Demo extends PcmSource {
  async connect() {
    this.context = new AudioContext({ latencyHint: "interactive" });
    const node = this.context.createBufferSource();
    node.buffer = await renderDemo(this.context.sampleRate);
    node.addEventListener("ended", () => this.emit("ended"));
    node.connect(this.context.destination);
    return node;
  }

  start() {
    super.start().start();
  }
}
