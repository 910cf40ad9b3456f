/** Listening: the input, its level, the look-ahead and what it costs, and how the stream fares. */

import { accuracyText, fetchCard } from "../service/accuracy.js";
import { Demo } from "../audio/demo.js";
import { LiveTake } from "../service/live.js";
import { Meter } from "../audio/meter.js";
import { Microphone } from "../audio/microphone.js";
import { Take } from "../notes/take.js";

const LAG_TROUBLE_MS = 500;
const PLAY_ALONG_MS = 200; // longest wait of a doubtful note, unless a longer one is chosen
const TAB_LOCK = "rse-transcribe-listening";
const TWO_TABS =
  "Another tab of this page listens too: each has its own take and its own place on the server.";
const IN_BACKGROUND = "Listening continues in the background; the picture pauses.";

const $ = (id) => document.getElementById(id);

/** Events: `change`; the state is in `state`, "idle" where nothing listens. */
export class LivePanel extends EventTarget {
  #stage;
  #takes;
  #say;
  #filter;
  #midi;
  #meter = new Meter($("meter"));
  #live = null;
  #notice = "";
  #card = {};
  #leaveTab = () => {};

  constructor({ stage, takes, say, filter, midi }) {
    super();
    this.#stage = stage;
    this.#takes = takes;
    this.#say = say;
    this.#filter = filter;
    this.#midi = midi;
    $("listen").addEventListener("click", () => {
      if (this.#live) this.#live.stop();
      else this.#begin(new Microphone($("device").value), "Live");
    });
    $("demo").addEventListener("click", () => this.#begin(new Demo(), "Demo"));
    $("lookahead").addEventListener("input", () => this.#showLookahead());
    navigator.mediaDevices?.addEventListener?.("devicechange", listDevices);
    addEventListener("beforeunload", (event) => this.#live && event.preventDefault());
    addEventListener("pagehide", () => this.#midi.silence());
    document.addEventListener("visibilitychange", () => this.#showVisibility());
    listDevices();
    this.#showLookahead();
    fetchCard().then(
      (card) => {
        this.#card = card;
        this.#showLookahead();
      },
      () => {}, // the hint stays general; listening will say that the server is gone
    );
  }

  get state() {
    return this.#live?.state ?? "idle";
  }

  enable({ busyElsewhere }) {
    const listening = this.#live !== null;
    $("listen-label").textContent = listening ? "Stop" : "Listen";
    $("listen").disabled = this.state === "finishing" || busyElsewhere;
    $("demo").disabled = $("demo-first").disabled = listening || busyElsewhere;
    $("device").disabled = $("lookahead").disabled = $("play-along").disabled = listening;
  }

  async #begin(source, kind) {
    const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const take = new Take(`${kind}, ${time}`);
    const live = new LiveTake(take, source);
    this.#live = live;
    this.#notice = "";
    this.#listen(live, take);
    try {
      await live.start(this.#options());
    } catch (error) {
      if (live !== this.#live) return; // abandoned: nobody waits for it
      this.#live = null;
      this.#changed();
      this.#say(error.message, true);
      return;
    }
    if (live !== this.#live) return;
    this.#stage.show(take);
    this.#stage.roll.follow(() => (live === this.#live ? live.head() : take.head));
    listDevices(); // names are known only after a microphone was allowed
  }

  #listen(live, take) {
    const on = (type, handle) => live.addEventListener(type, ({ detail }) => handle(detail));
    on("state", () => this.#changed());
    on("notice", (words) => {
      this.#notice = words;
      this.#changed();
    });
    on("ready", ({ delay_ms, median_delay_ms, instruments }) => {
      this.#midi.programs = instruments ?? {};
      const median = median_delay_ms ? `${milliseconds(median_delay_ms)}, at most ` : "";
      $("delay").textContent = median + milliseconds(delay_ms);
      this.#readOut(0);
      if (live.reconnects === 0) this.#enterTab(); // only now: `ready` takes older words back
    });
    on("level", (peak) => this.#meter.push(peak));
    on("progress", ({ behind_ms }) => {
      this.#readOut(behind_ms);
      this.#stage.showPosition();
    });
    on("note_on", ({ key, note }) => {
      if (note.confidence >= this.#filter.confidence && this.#filter.hears(note.instrument)) {
        this.#midi.noteOn(key, note, this.#filter.seconds);
      }
    });
    on("note_off", ({ key }) => this.#midi.noteOff(key));
    on("pedal", (down) => this.#midi.pedal(down));
    on("silence", () => this.#midi.silence());
    on("abandoned", () => {
      this.#live = null;
      this.#changed();
    });
    on("finish", () => {
      this.#live = null;
      this.#leaveTab();
      this.#meter.reset();
      if (take.notes.length) this.#takes.add(take);
      this.#stage.show(take);
      this.#takes.mark(take);
      this.#changed();
    });
  }

  /** The words last, so that what is wrong outlives the change of state that it caused. */
  #changed() {
    this.dispatchEvent(new Event("change"));
    if (this.#notice) this.#say(this.#notice, true);
  }

  #readOut(lagMs) {
    const { measuredDelay, lostSeconds, reconnects } = this.#live;
    const measured = measuredDelay === null ? "" : milliseconds(1000 * measuredDelay);
    $("measured").textContent = measured || "–";
    $("play-along-delay").textContent = measured && $("play-along").checked ? `(${measured})` : "";
    $("lag").textContent = milliseconds(lagMs);
    $("lag").classList.toggle("trouble", lagMs > LAG_TROUBLE_MS);
    $("dropped").textContent = `${lostSeconds.toFixed(1)} s`;
    $("dropped").classList.toggle("trouble", lostSeconds > 0);
    $("reconnects").textContent = reconnects;
  }

  #options() {
    const lookaheadMs = Number($("lookahead").value);
    if (!$("play-along").checked) return { lookaheadMs };
    return { mode: "anytime", lookaheadMs: Math.max(lookaheadMs, PLAY_ALONG_MS) };
  }

  #showLookahead() {
    const value = Number($("lookahead").value);
    $("lookahead-value").textContent = `${value} ms`;
    $("lookahead-cost").textContent = accuracyText(this.#card, value);
  }

  #showVisibility() {
    if (!this.#live) return;
    if (document.hidden) this.#say(IN_BACKGROUND);
    else this.#changed();
  }

  /** One tab at a time holds the lock; a second one may still listen, with a notice. */
  #enterTab() {
    navigator.locks?.request(TAB_LOCK, { ifAvailable: true }, (lock) => {
      if (!this.#live) return null; // it has ended meanwhile
      if (!lock) {
        this.#notice ||= TWO_TABS;
        this.#changed();
        return null;
      }
      return new Promise((leave) => {
        this.#leaveTab = leave;
      });
    });
  }
}

function milliseconds(value) {
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
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
