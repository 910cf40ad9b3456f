/**
 * The score of the take in view, next to the roll. The service engraves it, and updates it while the
 * take grows. Playback is marked. The score can be saved as MusicXML or PDF.
 */

import { after, cancel } from "../audio/timers.js";
import { instrumentOfProgram, isInstrument } from "../notes/instruments.js";
import { rowsOf, save, stemOf, titleOf } from "../notes/saving.js";
import { $ } from "../page.js";
import { fetchScore } from "./score-service.js";

const PROGRESS_AFTER_S = 1; // waiting time after which a progress bar is shown
const LIVE_S = 4; // interval between two scores of a growing take
const SETTLED_S = 0.5; // delay from a change of a take to the request of its score
const MAX_LIVE_BEATS = 64; // number of newest beats of a growing take in the score
const MAX_PART_NAME = 50; // limit of the service
const MIN_PITCH = 12; // limit of the service; lower notes in MIDI files are key switches
const TENTHS_MM_A_PIXEL = 2.2;
const MIN_WIDTH = 900; // minimum width in tenths of a mm, without zoom
const [MIN_ZOOMED, MAX_ZOOMED] = [700, 6000]; // widths: dense bars overlap below, notes are tiny above
const ZOOM_STEP = 1.25;
const NAMES = { musicxml: "MusicXML", pdf: "PDF" };

export class ScoreView {
  #stage;
  #filter;
  #showStatus;
  #tabs = [$("tab-roll"), $("tab-score")];
  #page = $("score-page");
  #take = null;
  #score = null; // latest response of the service
  #requestedState = ""; // state of the take for which the score was requested
  #rejected = { state: "", until: 0 }; // state that a busy service rejected, and the time of its retry in ms
  #request = null; // AbortController of the request for the score in view
  #requests = new Set(); // AbortControllers of all requests
  #cancelled = false; // true from Cancel until the take or the view changes
  #filterChanges = 0;
  #timer = 0;
  #zoom = 1; // size of the notes; the next refresh applies it
  #bar = -1;
  #now = -1; // marked time in seconds
  #sounding = []; // ids of marked notes

  constructor({ stage, filter, showStatus }) {
    this.#stage = stage;
    this.#filter = filter;
    this.#showStatus = showStatus;
    const tabs = this.#tabs;
    for (const [at, tab] of tabs.entries()) {
      tab.addEventListener("click", () => this.#choose(tab.value));
      tab.addEventListener("keydown", ({ key }) => {
        const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[key];
        if (next === undefined) return;
        const to = tabs.at(next % tabs.length);
        to.focus();
        this.#choose(to.value);
      });
    }
    $("save-musicxml").addEventListener("click", () => this.#save("musicxml"));
    $("save-pdf").addEventListener("click", () => this.#save("pdf"));
    $("score-cancel").addEventListener("click", () => this.#cancel());
    filter.addEventListener("change", () => (this.#filterChanges += 1));
    for (const [name, factor] of Object.entries({ in: ZOOM_STEP, out: 1 / ZOOM_STEP, fit: 0 })) {
      $(`zoom-${name}`).addEventListener("click", () => this.shown && (this.#zoom = this.#zoom * factor || 1));
    }
    addEventListener("beforeprint", () => this.#divide());
    this.#page.addEventListener("click", (event) => this.#seek(event));
    const follow = () => {
      this.#follow();
      requestAnimationFrame(follow);
    };
    requestAnimationFrame(follow);
  }

  get shown() {
    return !$("score").hidden;
  }

  #choose(which) {
    for (const tab of this.#tabs) {
      tab.setAttribute("aria-selected", String(tab.value === which));
      tab.tabIndex = tab.value === which ? 0 : -1;
    }
    $("score").hidden = which !== "score";
    $("roll-frame").hidden = which === "score";
    if (this.#cancelled) this.#forget(this.#take);
    if (this.shown) this.#refresh();
    else cancel(this.#timer);
  }

  #cancel() {
    this.#cancelled = this.#request !== null;
    for (const controller of this.#requests) controller.abort();
    if (this.#cancelled) this.#showText("Cancelled. To write the score, select its tab again.");
  }

  /** Fetch a score. After PROGRESS_AFTER_S, show a progress bar and Cancel. */
  async #fetch(controller, options) {
    const shows = (shown) => {
      $("score-progress").hidden = $("score-cancel").hidden = !shown;
    };
    const timer = after(PROGRESS_AFTER_S, () => shows(!this.#stage.take.live));
    this.#requests.add(controller);
    try {
      return await fetchScore({ ...options, signal: controller.signal });
    } finally {
      this.#requests.delete(controller);
      cancel(timer);
      if (!this.#requests.size) shows(false);
    }
  }

  /** Request the take's score if the take has changed. Repeat this while the take grows. */
  async #refresh() {
    cancel(this.#timer);
    const { take } = this.#stage;
    if (take !== this.#take) this.#forget(take);
    const fit = Math.max(MIN_WIDTH, this.#page.clientWidth * TENTHS_MM_A_PIXEL);
    const width = Math.round(Math.max(MIN_ZOOMED, Math.min(MAX_ZOOMED, fit / this.#zoom)));
    this.#zoom = fit / width;
    const state = `${take.live ? take.notes.length : take.revision} ${width} ${this.#filterChanges} ${take.name}`;
    const isBusy = state === this.#rejected.state && performance.now() < this.#rejected.until;
    const mustRequest = state !== this.#requestedState && !this.#request && !this.#cancelled && !isBusy;
    const notes = mustRequest ? this.#notes() : [];
    const isComplete = this.#filter.neutral;
    if (notes.length) {
      this.#request = new AbortController();
      try {
        const score = await this.#fetch(this.#request, {
          notes,
          pedal: this.#pedal(),
          title: titleOf(take),
          beats: take.live ? this.#newestBeats() : take.keptBeats,
          live: take.live,
          form: "svg",
          width,
        });
        if (take === this.#stage.take) this.#show(score, state, isComplete);
      } catch (error) {
        if (error.name !== "AbortError" && !take.live) this.#showText(error.message);
        if (error.final) this.#requestedState = state;
        if (error.seconds) this.#rejected = { state, until: performance.now() + 1000 * error.seconds };
      }
      this.#request = null;
    } else if (mustRequest && take.notes.length && !this.#filter.notesOf(take).length) {
      this.#forget(take);
      this.#showText("All notes are hidden.");
    }
    if (this.shown) this.#timer = after(take.live ? LIVE_S : SETTLED_S, () => this.#refresh());
  }

  #forget(take) {
    this.#request?.abort();
    this.#cancelled = false;
    this.#take = take;
    this.#score = null;
    this.#requestedState = this.#rejected.state = "";
    this.#page.replaceChildren();
    this.#showText(take.notes.length ? "Writing the score…" : "The score appears as notes are detected.");
  }

  /** `isComplete`: the score has all notes, so its beats are those of the take. */
  #show(score, state, isComplete) {
    this.#score = score;
    this.#requestedState = state;
    this.#bar = this.#now = -1;
    this.#sounding = [];
    // Parsed as an image, never as HTML. Its styles are in score.css, because the content security
    // policy forbids inline styles.
    const drawing = score.svg.replace(/<style[^]*?<\/style>/g, "");
    const { documentElement } = new DOMParser().parseFromString(drawing, "image/svg+xml");
    this.#page.replaceChildren(documentElement);
    if (isComplete && !this.#take.live && !this.#take.keptBeats) this.#take.beats = score.beats;
    this.#take.chords = { revision: this.#take.revision, names: score.chords ?? [] };
    this.#stage.roll.redraw();
    this.#showText(score.steady ? aboutText(score) : "No steady beat: the notes are spaced by time.");
  }

  #showText(message) {
    if ($("score-about").textContent !== message) $("score-about").textContent = message;
  }

  /** Before printing, divide the drawing into one for each system, so that page breaks cut none. */
  #divide() {
    const [drawing, ...others] = this.#page.querySelectorAll(":scope > svg");
    if (!drawing || others.length || !this.shown) return;
    const { width, height } = drawing.viewBox.baseVal;
    const { top, height: pixels } = drawing.getBoundingClientRect();
    const inner = drawing.querySelector("svg"); // has other units
    inner.setAttribute("width", width);
    inner.setAttribute("height", height);
    const systems = [...drawing.querySelectorAll("g.system")];
    const boxes = systems.map((system) => system.getBoundingClientRect());
    const ends = boxes.map(({ bottom }, at) => (bottom + (boxes[at + 1]?.top ?? bottom)) / 2 - top);
    for (const [at, system] of systems.entries()) {
      const [begin, end] = [ends[at - 1] ?? 0, ends[at]].map((place) => (place * height) / pixels);
      const own = at ? drawing.cloneNode() : drawing;
      own.setAttribute("viewBox", `0 ${begin} ${width} ${end - begin}`);
      const nested = [this.#page, own, inner.cloneNode(), system.parentNode.cloneNode(), system];
      if (at) nested.reduce((parent, child) => parent.appendChild(child));
    }
  }

  /** The newest beats of a growing take, from the start of a bar, so that older bars do not change. */
  #newestBeats() {
    const { beats } = this.#stage.take;
    const last = beats.length - MAX_LIVE_BEATS;
    return beats.slice(Math.max(0, beats.findLastIndex(({ place }, at) => !place && at <= last)));
  }

  /** The notes of the score. Names of tracks are parts, whose instruments follow from their programs. */
  #notes() {
    const take = this.#stage.take;
    const from = take.live && take.beats.length > MAX_LIVE_BEATS ? this.#newestBeats()[0].time_s - 0.1 : 0;
    const isWritten = ({ pitch, onset, offset }) => offset !== null && onset >= from && pitch >= MIN_PITCH;
    const notes = this.#filter.notesOf(take).filter(isWritten);
    const rows = rowsOf(notes.map((note) => ({ ...note, bends: undefined })));
    const isAlone = new Set(rows.map(({ instrument }) => instrument)).size < 2; // its name may be that of the piece
    const partOf = (name) => ({
      instrument: instrumentOfProgram(take.programs[name]),
      part: isAlone ? undefined : name?.slice(0, MAX_PART_NAME),
    });
    return rows.map((row) => (isInstrument(row.instrument) ? row : { ...row, ...partOf(row.instrument) }));
  }

  #pedal() {
    return rowsOf(this.#stage.take.pedal.filter(({ offset }) => offset !== null));
  }

  async #save(form) {
    const take = this.#stage.take;
    if (!this.#notes().length) return this.#showStatus("There are no notes to write.", true);
    const writing = `Writing the ${NAMES[form]}…`;
    this.#showStatus(writing);
    $(`save-${form}`).disabled = true;
    try {
      const blob = await this.#fetch(new AbortController(), {
        notes: this.#notes(),
        pedal: this.#pedal(),
        title: titleOf(take),
        beats: take.keptBeats,
        form,
      });
      save(blob, `${stemOf(take)}.${form}`);
      if (form === "pdf" && take === this.#take && this.#score?.undrawable)
        this.#showStatus(`The PDF's font lacks these characters of the title: ${this.#score.undrawable}`, true);
    } catch (error) {
      if (error.name !== "AbortError") this.#showStatus(error.message, true);
    } finally {
      if ($("status").textContent === writing) this.#showStatus("Ready");
      this.#stage.enable();
    }
  }

  /** Mark the bar and the sounding notes. Scroll to the bar if Follow is checked. */
  #follow() {
    const { player, take } = this.#stage;
    if (take !== this.#take && this.shown) this.#refresh();
    if (!this.#score || take !== this.#take) return;
    const now = take.live ? take.head : player.position;
    if (!this.shown || now === this.#now) return;
    this.#now = now;
    const { bars_s, notes_s } = this.#score;
    this.#mark(Object.keys(notes_s).filter((id) => notes_s[id][0] <= now && now < notes_s[id][1]));
    const bar = bars_s.findLastIndex((begin) => begin <= now + 0.02);
    if (bar === this.#bar) return;
    this.#bar = bar;
    const measures = this.#page.querySelectorAll("g.measure");
    for (const [place, measure] of measures.entries()) measure.classList.toggle("now", place === bar);
    if (!$("follow").checked) return;
    if (bar > 0) measures[bar]?.scrollIntoView({ block: "nearest", behavior: "smooth" });
    else this.#page.scrollTo({ top: 0, behavior: "smooth" }); // shows the title
  }

  #mark(sounding) {
    if (`${sounding}` === `${this.#sounding}`) return;
    for (const id of this.#sounding) $(id)?.classList.remove("sounding");
    for (const id of sounding) $(id)?.classList.add("sounding");
    this.#sounding = sounding;
  }

  /** Seek to the bar that was clicked. */
  #seek({ clientX, clientY }) {
    if (!this.#score || this.#take.live) return;
    const inside = ({ left, right, top, bottom }) =>
      clientX >= left && clientX <= right && clientY >= top && clientY <= bottom;
    const measures = [...this.#page.querySelectorAll("g.measure")];
    const bar = measures.findIndex((measure) => inside(measure.getBoundingClientRect()));
    if (bar < 0) return;
    this.#stage.seek(this.#score.bars_s[bar] ?? 0);
  }
}

const aboutText = ({ bpm, signature, key }) =>
  `${signature.join("/")}, ${keyText(key)}, about ${Math.round(bpm)} beats a minute`;

const keyText = (key) => {
  const name = key.replace("m", "").replace("b", "♭").replace("#", "♯");
  return `${name} ${key.endsWith("m") ? "minor" : "major"}`;
};
