/** The take in view: roll, overview, list of notes, and the controls for playback and saving. */

import { Player } from "../audio/player.js";
import { inBars } from "../edit/beats.js";
import { clockText, countText } from "../notes/pitch.js";
import { dragOut, jsonOf, midiOf, save, stemOf } from "../notes/saving.js";
import { Take } from "../notes/take.js";
import { $ } from "../page.js";
import { store } from "../state/store.js";
import { Legend } from "./legend.js";
import { NoteList } from "./note-list.js";
import { Overview } from "./overview.js";
import { Roll } from "./roll.js";
import { TakeView } from "./take-view.js";

const ZOOM_STEP = 1.5;
const SEEK_STEP_S = 1;
const MIN_LOOP_S = 0.2;
const NOWHERE = { start: 0, end: 0 };

export class Stage {
  #filter;
  #overview;
  #noteList;
  #legend;
  #counts;
  #name = () => ($("take-name").textContent = this.take.name);
  #frame = 0; // animation frame of the clock during playback
  #activity = { busy: false, following: false };
  take = new Take("New take");

  constructor(filter) {
    this.#filter = filter;
    this.roll = new Roll($("roll"), filter);
    this.#overview = new Overview($("overview"), filter);
    this.#noteList = new NoteList($("notes-panel"), $("notes"), filter);
    this.#legend = new Legend($("instruments"), filter);
    this.#counts = new TakeView(() => this.#showCount(), () => 0);
    this.player = new Player(filter);
    this.#listen();
    this.roll.show(this.take);
    store.set({ take: this.take });
  }

  show(take) {
    this.player.load(take);
    this.take.removeEventListener("about", this.#name);
    this.take = take;
    store.set({ take, selection: new Set(), ...(take.live && { editing: false }) });
    take.addEventListener("about", this.#name);
    this.roll.show(take);
    this.#overview.show(take);
    this.#noteList.show(take);
    this.#legend.show(take);
    this.#counts.show(take);
    $("empty").hidden = true;
    $("to-now").hidden = true;
    this.#name();
    this.#showLoop();
    this.showPosition();
  }

  /** Show no take. */
  clear() {
    this.show(new Take("New take"));
    $("empty").hidden = false;
  }

  /** Enable the controls that apply. For a growing take, these are only those of the view. */
  enable(activity = this.#activity) {
    this.#activity = activity;
    const { busy, following } = activity;
    const { take } = this;
    $("play").disabled = $("loop").disabled = busy || !(take.notes.length || take.recording);
    $("seek").disabled = (busy && !following) || !take.duration;
    $("edit").disabled = $("practise").disabled = busy || take.live || !$("empty").hidden;
    const saved = !busy && !take.live && (take.midi || take.notes.length || take.edited);
    for (const form of ["midi", "json", "musicxml", "pdf"]) $(`save-${form}`).disabled = !saved;
    $("save-midi").draggable = Boolean(saved);
    $("save-wav").disabled = busy || take.live || !take.recording;
    $("balance").disabled = !take.recording;
    const empty = take.duration === 0 && !following;
    for (const id of ["zoom-in", "zoom-out", "zoom-fit"]) $(id).disabled = empty;
  }

  showPosition() {
    const { take, roll } = this;
    const position = take.live ? take.head : this.player.position;
    const duration = take.duration;
    $("position").textContent = clockText(position);
    $("length").textContent = `/ ${clockText(duration)}`;
    $("length").hidden = take.live;
    $("seek").max = duration;
    const scrolledBack = take.live && !roll.following;
    $("seek").value = scrolledBack ? roll.view.start + roll.view.span / 2 : position;
    $("seek").setAttribute("aria-valuetext", `${clockText(position)} of ${clockText(duration)}`);
  }

  #showCount() {
    const all = this.take.notes.length;
    const count = this.#filter.notesOf(this.take).length;
    const text = countText(all, "note");
    $("note-count").textContent = count === all ? text : `${count} of ${text}`;
    this.enable(); // the first note can be played and saved
  }

  #showPlaying(playing) {
    const { player, roll } = this;
    $("play").classList.toggle("playing", playing);
    $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    roll.play(playing ? () => player.position : null);
    roll.setCursor(player.position);
    const follow = () => {
      this.showPosition();
      if (player.playing) this.#frame = requestAnimationFrame(follow);
    };
    cancelAnimationFrame(this.#frame); // a seek pauses and plays within one frame
    follow();
  }

  #toggle() {
    if ($("play").disabled) return;
    if (this.player.playing) this.player.pause();
    else this.player.play({ countsIn: true });
  }

  /** Move the position. For a live take, scroll the roll. */
  async seek(seconds) {
    if (this.take.live) {
      this.roll.scroll(seconds - this.roll.view.span / 2);
      return;
    }
    await this.player.seek(seconds);
    this.roll.setCursor(this.player.position);
    this.showPosition();
  }

  #listen() {
    const { player, roll } = this;
    const zoom = (factor) => this.take.duration && !$("roll-frame").hidden && roll.zoom(factor);
    const step = (seconds) => {
      const { start, span } = roll.view;
      this.seek((this.take.live ? start + span / 2 : player.position) + seconds);
    };
    const keys = {
      " ": () => this.#toggle(),
      ArrowLeft: () => step(-SEEK_STEP_S),
      ArrowRight: () => step(SEEK_STEP_S),
      ArrowUp: () => roll.scrollPitches(roll.view.low + 1),
      ArrowDown: () => roll.scrollPitches(roll.view.low - 1),
      Home: () => this.seek(0),
      End: () => this.seek(this.take.duration),
      "+": () => zoom(1 / ZOOM_STEP),
      "=": () => zoom(1 / ZOOM_STEP),
      "-": () => zoom(ZOOM_STEP),
      "*": () => roll.zoomPitches(1 / ZOOM_STEP),
      "/": () => roll.zoomPitches(ZOOM_STEP),
      l: () => this.#toggleLoop(),
      0: () => roll.fit(),
    };
    document.addEventListener("keydown", (event) => {
      const bare = event.target === document.body && event.key === " ";
      if (!bare && event.target !== $("roll")) return;
      const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    const press = (id, act) => $(id).addEventListener("click", act);
    press("play", () => this.#toggle());
    press("loop", () => this.#toggleLoop());
    press("to-now", () => roll.toNow());
    press("zoom-in", () => zoom(1 / ZOOM_STEP));
    press("zoom-out", () => zoom(ZOOM_STEP));
    press("zoom-fit", () => $("roll-frame").hidden || roll.fit());
    dragOut($("save-midi"), () => this.take, this.#filter);
    press("save-midi", () => this.#save("mid", midiOf(this.take, this.#filter)));
    press("save-json", () => this.#save("json", jsonOf(this.take, this.#filter)));
    press("save-wav", () => this.#save("wav", this.take.recording.wav(this.take.duration)));
    $("seek").addEventListener("input", () => this.seek(Number($("seek").value)));
    roll.addEventListener("seek", ({ detail }) => !this.take.live && this.seek(detail));
    roll.addEventListener("passage", ({ detail }) => this.#loop(detail));
    roll.addEventListener("follow", () => {
      $("to-now").hidden = roll.following || !this.take.live;
    });
    player.addEventListener("play", () => this.#showPlaying(true));
    player.addEventListener("pause", () => this.#showPlaying(false));
    $("balance").addEventListener("input", () => this.#balance());
    this.#balance();
    this.#filter.addEventListener("change", this.#counts.soon);
  }

  /** `blob` may be a promise. */
  async #save(ending, blob) {
    const { take } = this;
    try {
      save(await blob, `${stemOf(take)}.${ending}`);
      if (ending === "wav") take.soundSaved = true;
      else if (this.#filter.neutral) take.recordSaved();
    } catch ({ message }) {
      this.player.dispatchEvent(new CustomEvent("trouble", { detail: message }));
    }
  }

  #toggleLoop() {
    if ($("loop").disabled) return;
    const { start, span } = this.roll.view;
    this.#loop(this.player.passage ? null : { start, end: start + span });
  }

  /** Loop {start, end} within the take, or stop looping for null. */
  #loop(passage) {
    const { duration } = this.take;
    const within = (seconds) => Math.max(0, Math.min(duration, seconds));
    const { start, end } = passage ? inBars(this.take.beats, within(passage.start), within(passage.end)) : NOWHERE;
    this.player.passage = end - start >= MIN_LOOP_S ? { start, end } : null;
    this.#showLoop();
  }

  #showLoop() {
    const { passage } = this.player;
    $("loop").setAttribute("aria-pressed", String(passage !== null));
    this.roll.passage = passage;
  }

  #balance() {
    const share = Number($("balance").value);
    this.player.balance = share;
    $("balance").setAttribute("aria-valuetext", `${100 * share} % notes, the rest recording`);
  }
}
