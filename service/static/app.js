/** Wires the page: what is shown, what may be pressed, and who tells whom. */

import { LiveTake } from "./live.js";
import { Meter } from "./meter.js";
import { Microphone } from "./microphone.js";
import { NoteList } from "./note-list.js";
import { Overview } from "./overview.js";
import { clockText, countText } from "./pitch.js";
import { Player } from "./player.js";
import { Roll } from "./roll.js";
import { Take } from "./take.js";
import { TakeList } from "./takes.js";
import { Uploads } from "./uploads.js";

const STATUS = {
  idle: "Ready",
  connecting: "Connecting…",
  listening: "Listening",
  reconnecting: "Reconnecting…",
  finishing: "Finishing…",
  transcribing: "Transcribing…",
};
const ZOOM_STEP = 1.5;
const SEEK_STEP_S = 1;

const $ = (id) => document.getElementById(id);

const roll = new Roll($("roll"));
const overview = new Overview($("overview"));
const noteList = new NoteList($("notes-panel"), $("notes"));
const takes = new TakeList($("takes-panel"), $("takes"));
const meter = new Meter($("meter"));
const player = new Player();
let take = null;
let live = null;

// -- state and words ------------------------------------------------------------------------

function enter(state) {
  document.body.dataset.state = state;
  const busy = state !== "idle";
  const listening = live !== null;
  $("listen-label").textContent = listening ? "Stop" : "Listen";
  $("listen").disabled = state === "finishing" || state === "transcribing";
  $("device").disabled = listening;
  $("lookahead").disabled = listening;
  $("file").disabled = listening;
  $("takes").inert = busy;
  $("play").disabled = busy || !take?.notes.length;
  $("download").disabled = busy || !take?.midi;
  $("seek").disabled = busy || !take?.duration;
  for (const id of ["zoom-in", "zoom-out", "zoom-fit"]) $(id).disabled = !take;
  $("zoom-fit").disabled ||= listening;
  say(STATUS[state]);
}

function say(words, trouble = false) {
  $("status").textContent = words;
  $("status").classList.toggle("trouble", trouble);
}

function show(next) {
  player.load(next);
  take?.removeEventListener("change", describe);
  take = next;
  take.addEventListener("change", describe);
  roll.show(take);
  overview.show(take);
  noteList.show(take);
  takes.mark(take);
  $("empty").hidden = true;
  $("take-name").textContent = take.name;
  describe();
  showPosition();
}

function describe() {
  $("note-count").textContent = countText(take.notes.length, "note");
}

function showPosition() {
  const position = take.live ? take.head : player.position;
  const duration = take.duration;
  $("position").textContent = clockText(position);
  $("length").textContent = `/ ${clockText(duration)}`;
  $("length").hidden = take.live;
  $("seek").max = duration;
  $("seek").value = position;
  $("seek").setAttribute("aria-valuetext", `${clockText(position)} of ${clockText(duration)}`);
}

// -- live -----------------------------------------------------------------------------------

async function listen() {
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const next = new Take(`Live, ${time}`);
  live = new LiveTake(next);
  live.addEventListener("state", () => enter(live.state));
  live.addEventListener("trouble", ({ detail }) => {
    trouble = detail;
    say(detail, true);
  });
  live.addEventListener("ready", ({ detail }) => {
    trouble = "";
    $("delay").textContent = `${Math.round(detail.delay_ms)} ms`;
    readout(0);
  });
  live.addEventListener("level", ({ detail }) => meter.push(detail));
  live.addEventListener("progress", ({ detail }) => {
    readout(detail.behind_ms);
    showPosition();
  });
  live.addEventListener("finish", () => finishLive(next));
  let trouble = "";

  function readout(lagMs) {
    $("lag").textContent = lagMs < 1000 ? `${Math.round(lagMs)} ms` : `${(lagMs / 1000).toFixed(1)} s`;
    $("lag").classList.toggle("trouble", lagMs > 500);
    $("dropped").textContent = `${live.lostSeconds.toFixed(1)} s`;
    $("reconnects").textContent = Math.max(0, live.sessions - 1);
  }

  function finishLive(finished) {
    live = null;
    meter.reset();
    if (finished.notes.length) takes.add(finished);
    show(finished);
    enter("idle");
    if (trouble) say(trouble, true);
  }

  try {
    await live.start({ deviceId: $("device").value, lookaheadMs: Number($("lookahead").value) });
  } catch (error) {
    live = null;
    enter("idle");
    say(error.message, true);
    return;
  }
  show(next);
  roll.follow(() => live?.head() ?? next.head);
  listDevices(); // names are told only once a microphone was allowed
}

async function listDevices() {
  const devices = await Microphone.devices();
  const chosen = $("device").value;
  const options = devices.map(({ deviceId, label }, index) => {
    const text = label || `Microphone ${index + 1}`;
    return new Option(text, deviceId, false, deviceId === chosen);
  });
  if (options.length) $("device").replaceChildren(...options);
}

// -- recordings -----------------------------------------------------------------------------

const uploads = new Uploads();
uploads.addEventListener("start", ({ detail: { file, take: next, seconds } }) => {
  $("upload").hidden = false;
  $("upload-name").textContent = file.name;
  $("upload-text").textContent = "";
  $("upload-progress").removeAttribute("value");
  show(next);
  roll.follow(() => next.head, Math.min(60, Math.max(10, seconds ?? 20)));
  enter("transcribing");
});
uploads.addEventListener("progress", ({ detail: { take: current, seconds } }) => {
  const whole = seconds ? ` of ${clockText(seconds)}` : "";
  $("upload-text").textContent = `${clockText(current.head)}${whole}`;
  if (seconds) $("upload-progress").value = Math.min(1, current.head / seconds);
  showPosition();
});
uploads.addEventListener("finish", ({ detail: { take: finished, words } }) => {
  if (finished.midi) takes.add(finished); // none where nothing was found before a failure
  show(finished);
  $("upload").hidden = !uploads.busy;
  enter(uploads.busy ? "transcribing" : "idle");
  if (words) say(`${finished.name}: ${words}`, true);
});

function takeFiles(files) {
  if (live) say("Stop listening first, then drop the recording again.", true);
  else if (files.length) uploads.add([...files]);
}

function acceptDrops() {
  let depth = 0; // enter and leave also come for every child
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const reveal = (change) => {
    depth = Math.max(0, depth + change);
    $("dropping").hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => hasFiles(event) && reveal(1));
  addEventListener("dragleave", (event) => hasFiles(event) && reveal(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    reveal(-depth);
    takeFiles(event.dataTransfer.files);
  });
}

// -- playback -------------------------------------------------------------------------------

function showPlaying(playing) {
  $("play").classList.toggle("playing", playing);
  $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  roll.play(playing ? () => player.position : null);
  roll.setCursor(player.position);
  if (playing) requestAnimationFrame(followPlayer);
  else showPosition();
}

function followPlayer() {
  if (!player.playing) return;
  showPosition();
  requestAnimationFrame(followPlayer);
}

function togglePlay() {
  if ($("play").disabled) return;
  if (player.playing) player.pause();
  else player.play();
}

async function seek(seconds) {
  if (!take || take.live) return;
  await player.seek(seconds);
  roll.setCursor(player.position);
  showPosition();
}

function download() {
  const name = take.name.replace(/\.[^.]+$/, "").replace(/[/\\:*?"<>|]+/g, ".");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([take.midi], { type: "audio/midi" }));
  link.download = `${name}.mid`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const ROLL_KEYS = {
  " ": togglePlay,
  ArrowLeft: () => seek(player.position - SEEK_STEP_S),
  ArrowRight: () => seek(player.position + SEEK_STEP_S),
  Home: () => seek(0),
  End: () => seek(take?.duration ?? 0),
  "+": () => take && roll.zoom(1 / ZOOM_STEP),
  "=": () => take && roll.zoom(1 / ZOOM_STEP),
  "-": () => take && roll.zoom(ZOOM_STEP),
  0: () => take && !take.live && roll.fit(),
};

// -- events ---------------------------------------------------------------------------------

$("listen").addEventListener("click", () => (live ? live.stop() : listen()));
$("lookahead").addEventListener("input", () => {
  $("lookahead-value").textContent = `${$("lookahead").value} ms`;
});
$("file").addEventListener("change", () => {
  takeFiles($("file").files);
  $("file").value = ""; // the same file may be chosen again
});
$("upload-cancel").addEventListener("click", () => uploads.cancel());
$("play").addEventListener("click", togglePlay);
$("download").addEventListener("click", download);
$("seek").addEventListener("input", () => seek(Number($("seek").value)));
$("zoom-in").addEventListener("click", () => roll.zoom(1 / ZOOM_STEP));
$("zoom-out").addEventListener("click", () => roll.zoom(ZOOM_STEP));
$("zoom-fit").addEventListener("click", () => roll.fit());
$("roll").addEventListener("keydown", (event) => {
  const act = event.ctrlKey || event.metaKey || event.altKey ? null : ROLL_KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
roll.addEventListener("seek", ({ detail }) => seek(detail));
takes.addEventListener("choose", ({ detail }) => {
  show(detail);
  enter("idle");
});
player.addEventListener("play", () => showPlaying(true));
player.addEventListener("pause", () => showPlaying(false));
navigator.mediaDevices?.addEventListener?.("devicechange", listDevices);
addEventListener("beforeunload", (event) => live && event.preventDefault());

acceptDrops();
listDevices();
roll.show(new Take("New take"));
enter("idle");
