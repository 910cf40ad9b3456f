/** The panel of live takes: starts and stops listening, and shows delays and the state of the stream. */

import { Take } from "../notes/take.js";
import { $ } from "../page.js";
import { LiveTake } from "../service/live.js";
import { InputPanel } from "./input-panel.js";

const LATE_S = 2;
const MIN_SOUND_S = 3; // minimum length of a listed take without notes
const LATE = `The notes are more than ${LATE_S} s late, so MIDI out is paused.`;

/** Events: `change`. `state` is "idle" if there is no live take. */
export class LivePanel extends EventTarget {
  #stage;
  #takes;
  #showStatus;
  #filter;
  #midi;
  #choices;
  #input = new InputPanel();
  #live = null;
  #notice = "";
  #silent = ""; // text shown while the input is silent
  #late = false;
  #screen = null; // wake lock of the screen

  constructor({ stage, takes, showStatus, filter, midi, choices }) {
    super();
    this.#stage = stage;
    this.#takes = takes;
    this.#showStatus = showStatus;
    this.#filter = filter;
    this.#midi = midi;
    this.#choices = choices;
    $("listen").addEventListener("click", ({ detail }) => {
      if ($("listen").ariaDisabled === "true" || detail > 1) return; // ignore the second click of a double-click
      if (this.#live) this.#live.stop();
      else this.#begin(this.#input.microphone());
    });
    addEventListener("beforeunload", (event) => this.#live && event.preventDefault());
    addEventListener("pagehide", () => this.#midi.silence());
    // The system releases the wake lock when the page is hidden.
    document.addEventListener("visibilitychange", () => document.hidden || this.#keepScreenOn());
  }

  get state() {
    return this.#live?.state ?? "idle";
  }

  enable({ busyElsewhere }) {
    const listening = this.#live !== null;
    const label = this.state === "finishing" ? "Stop now" : "Stop";
    $("listen-label").textContent = listening ? label : "Listen";
    // Not `disabled`, which would remove the keyboard focus.
    $("listen").ariaDisabled = busyElsewhere;
    this.#input.enabled = this.#choices.enabled = !listening;
  }

  async #begin(source) {
    const time = new Date().toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const take = new Take(`Live, ${time}`);
    const live = new LiveTake(take, source);
    this.#live = live;
    this.#notice = this.#silent = "";
    this.#late = false;
    this.#input.begin(source);
    this.#listen(live, take);
    this.#keepScreenOn();
    try {
      await live.start(this.#choices.liveOptions);
    } catch (error) {
      if (live !== this.#live) return; // the take was abandoned
      this.#end();
      this.#showStatus(error.message, true);
      return;
    }
    if (live !== this.#live) return;
    this.#stage.show(take);
    this.#takes.mark(take);
    this.#stage.roll.follow(() => (live === this.#live ? live.head() : take.head));
    this.#input.list();
  }

  #end() {
    this.#live = null;
    this.#input.end();
    this.#screen?.release();
    this.#screen = null;
    this.#changed();
  }

  #listen(live, take) {
    const on = (type, handle) => live.addEventListener(type, ({ detail }) => handle(detail));
    on("state", () => this.#changed());
    on("notice", (message) => {
      this.#notice = message;
      this.#changed();
    });
    on("ready", ({ delay_ms, median_delay_ms, instruments }) => {
      this.#midi.programs = instruments ?? {};
      this.#choices.offer(Object.keys(instruments ?? {}));
      const median = median_delay_ms ? `${inWords(median_delay_ms / 1000)}, at most ` : "";
      $("delay").textContent = median + inWords(delay_ms / 1000);
      this.#readOut();
    });
    on("sound", (chunk) => {
      this.#showTrouble(this.#input.process(chunk));
    });
    on("progress", () => {
      this.#readOut();
      this.#stage.showPosition();
    });
    on("note_on", ({ key, note }) => {
      if (note.confidence >= this.#filter.confidence && this.#filter.allows(note.instrument)) {
        this.#midi.noteOn(key, note, this.#filter.seconds);
      }
    });
    on("note_off", ({ key }) => this.#midi.noteOff(key));
    on("pedal", (down) => this.#midi.pedal(down));
    on("silence", () => this.#midi.silence());
    on("abandoned", () => this.#end());
    on("finish", () => {
      if (take.notes.length || live.untranscribed || take.recording?.seconds >= MIN_SOUND_S) this.#takes.add(take);
      this.#stage.show(take);
      this.#takes.mark(take);
      this.#end();
    });
  }

  /** Show the text last, so that the change of state does not replace an error. */
  #changed() {
    this.dispatchEvent(new Event("change"));
    const message = this.#notice || (this.#late && LATE) || this.#silent;
    if (message && (this.#notice || this.state === "listening")) this.#showStatus(message, true);
  }

  #showTrouble(silent) {
    const { lag } = this.#live;
    const late = lag > LATE_S;
    $("lag").textContent = inWords(lag);
    $("lag").classList.toggle("trouble", late);
    if (late === this.#late && silent === this.#silent) return;
    this.#late = late;
    this.#silent = silent;
    this.#changed();
  }

  #readOut() {
    const { measuredDelay, lostSeconds, reconnects } = this.#live;
    const measured = measuredDelay === null ? "" : inWords(measuredDelay);
    $("measured").textContent = measured || "–";
    $("delay-brief").textContent = measured && `${measured} of delay`;
    $("dropped").textContent = `${lostSeconds.toFixed(1)} s`;
    $("reconnects").textContent = reconnects;
    $("dropped").classList.toggle("trouble", lostSeconds > 0);
  }

  async #keepScreenOn() {
    if (!this.#live) return;
    const screen = await navigator.wakeLock?.request("screen").catch(() => null);
    if (this.#live) this.#screen = screen;
    else screen?.release();
  }
}

const inWords = (seconds) =>
  seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;
