/** Connects the parts of the page: the stage, the panels next to it, and the status line. */

import { beatTools } from "./edit/beat-tools.js";
import { EditGestures } from "./edit/edit-gestures.js";
import { Editor } from "./edit/editor.js";
import { MidiOut } from "./notes/midi-out.js";
import { NoteFilter } from "./notes/note-filter.js";
import { $ } from "./page.js";
import { RequestOptions } from "./panels/choices.js";
import { filterPanel } from "./panels/filter-panel.js";
import { LivePanel } from "./panels/live-panel.js";
import { midiPanel } from "./panels/midi-panel.js";
import { TakeList } from "./panels/takes.js";
import { UploadsPanel } from "./panels/uploads-panel.js";
import { practiseBar } from "./practise/practise.js";
import { Stage } from "./roll/stage.js";
import { ScoreView } from "./score/score-view.js";
import { Archive } from "./state/archive.js";
import { store } from "./state/store.js";

const STATUS = {
  idle: "Ready",
  connecting: "Connecting…",
  listening: "Listening",
  reconnecting: "Reconnecting…",
  finishing: "Finishing…",
  transcribing: "Transcribing…",
};

const KEPT = $("takes-kept").textContent;

const filter = new NoteFilter();
const midi = new MidiOut();
const archive = new Archive();
export const stage = new Stage(filter);
const editor = new Editor({ player: stage.player, filter, showStatus });
new EditGestures($("roll"), editor, stage.roll);
beatTools({ editor, player: stage.player, showStatus });
practiseBar({ editor, filter });
const choices = new RequestOptions();
const takes = new TakeList($("takes-panel"), $("takes"), filter);
new ScoreView({ stage, filter, showStatus });
const livePanel = new LivePanel({ stage, takes, showStatus, filter, midi, choices });
const uploadsPanel = new UploadsPanel({ stage, takes, showStatus, choices });

function showStatus(message, trouble = false) {
  // Setting the same text again would make screen readers repeat it.
  if ($("status").textContent !== message) $("status").textContent = message;
  $("status").classList.toggle("trouble", trouble);
}

/** Update the page's state attribute, its controls and the status line after any change. */
function settle() {
  const state = uploadsPanel.busy ? "transcribing" : livePanel.state;
  const following = livePanel.state !== "idle";
  const busy = state !== "idle";
  document.body.dataset.state = state;
  document.title = busy ? `${STATUS[state]} RSE Transcribe` : "RSE Transcribe";
  livePanel.enable({ busyElsewhere: uploadsPanel.busy });
  stage.enable({ busy, following });
  $("file").disabled = following;
  $("takes").inert = busy;
  showStatus(STATUS[state]);
}

livePanel.addEventListener("change", settle);
uploadsPanel.addEventListener("change", settle);
uploadsPanel.addEventListener("open", ({ detail }) => livePanel.state === "idle" && choose(detail));
store.subscribe(["take"], () => archive.follow(store.get("take")));
store.subscribe(["take"], () => midi.reset());
takes.addEventListener("add", ({ detail }) => archive.follow(detail, true));
archive.addEventListener("trouble", ({ detail }) => {
  showStatus(detail, true);
  $("takes-kept").textContent = detail;
});
archive.addEventListener("kept", () => ($("takes-kept").textContent = KEPT));
function choose(take) {
  stage.show(take);
  takes.mark(take);
  settle();
}

takes.addEventListener("choose", ({ detail }) => choose(detail));
takes.addEventListener("delete", ({ detail }) => {
  archive.delete(detail);
  const next = takes.all.at(-1);
  if (stage.take === detail && next) choose(next);
  else if (!next) stage.clear();
  settle();
});
takes.addEventListener("again", ({ detail: { name, recording } }) =>
  uploadsPanel.add([recording.file(name)]),
);
stage.player.addEventListener("trouble", ({ detail }) => showStatus(detail, true));
stage.player.addEventListener("note", ({ detail }) => {
  midi.programs = stage.take.programs;
  midi.play(detail.note, detail.inSeconds);
});
stage.player.addEventListener("pedal", ({ detail }) => midi.pedal(detail.down, detail.inSeconds));
stage.player.addEventListener("pause", () => midi.silence());

filterPanel(filter);
midiPanel(midi, showStatus, choices);
settle();
export const restored = archive.load().then((kept) => {
  for (const take of kept) takes.add(take);
  if (kept.length && livePanel.state === "idle" && !store.get("take").notes.length) choose(kept.at(-1));
});
