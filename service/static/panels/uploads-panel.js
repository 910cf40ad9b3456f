/** Recordings that were dropped on the page or chosen, each with a progress bar. */

import { FileRecording } from "../audio/recording.js";
import { isTakeFile, openTake, stem } from "../notes/opening.js";
import { clockText } from "../notes/pitch.js";
import { $ } from "../page.js";
import { Uploads } from "../service/uploads.js";

const ROLL_S = 20; // seconds that the roll shows while a recording is transcribed

/** Events: `change`. `busy` is true while a recording is transcribed. */
export class UploadsPanel extends EventTarget {
  #uploads = new Uploads();
  #rows = new Map(); // job -> row
  #stage;
  #takes;
  #showStatus;
  #choices;

  constructor({ stage, takes, showStatus, choices }) {
    super();
    this.#choices = choices;
    this.#stage = stage;
    this.#takes = takes;
    this.#showStatus = showStatus;
    this.#uploads.addEventListener("change", ({ detail }) => this.#changed(detail));
    $("file").addEventListener("change", () => {
      this.add($("file").files);
      $("file").value = ""; // so that the same file can be chosen again
    });
    this.#acceptDrops();
  }

  get busy() {
    return this.#uploads.busy;
  }

  add(files) {
    const all = [...files];
    const opened = all.filter(isTakeFile).map((file) => {
      // A recording with the same name becomes the audio of an opened file.
      const sound = all.find((other) => stem(other.name) === stem(file.name) && !isTakeFile(other));
      if (sound) all.splice(all.indexOf(sound), 1);
      return { file, sound };
    });
    this.#open(opened);
    this.#transcribe(all.filter((file) => !isTakeFile(file)));
  }

  /** Open the files and choose the last of them. Then show errors, because this changes the status. */
  async #open(files) {
    const errors = [];
    let last = null;
    for (const { file, sound } of files) {
      try {
        const take = await openTake(file);
        if (sound) take.recording = new FileRecording(sound);
        this.#takes.add(take);
        last = take;
      } catch ({ message }) {
        errors.push(message);
      }
    }
    if (last) this.dispatchEvent(new CustomEvent("open", { detail: last }));
    if (errors.length) this.#showStatus(errors.join(" "), true);
  }

  #transcribe(files) {
    if (!files.length) return;
    if ($("file").disabled) this.#showStatus("Stop listening first, then drop the recording again.", true);
    else this.#uploads.add([...files], this.#choices.options);
  }

  #changed(job) {
    const row = this.#rows.get(job) ?? this.#addRow(job);
    const { file, take, state, message } = job;
    if (state === "running" && this.#stage.take !== take) {
      this.#stage.show(take);
      this.#stage.roll.follow(() => take.head, ROLL_S);
    }
    row.show(job);
    this.#choices.offer(Object.keys(take.programs));
    if (state === "running") {
      this.#stage.showPosition();
    } else if (state !== "waiting") {
      if (take.midi) this.#takes.add(take); // missing if it failed before the first note
      if (this.#stage.take === take) this.#stage.show(take);
      this.#takes.mark(this.#stage.take);
      if (state !== "failed") this.#removeRow(job);
    }
    this.dispatchEvent(new Event("change"));
    if (message && ["failed", "done"].includes(state)) this.#showStatus(`${file.name}: ${message}`, true);
  }

  #addRow(job) {
    const row = new Row(job.file.name);
    row.button.addEventListener("click", () => {
      if (job.state === "failed") this.#removeRow(job);
      else this.#uploads.cancel(job);
    });
    this.#rows.set(job, row);
    $("uploads").append(row.item);
    $("uploads").hidden = false;
    return row;
  }

  #removeRow(job) {
    this.#rows.get(job).item.remove();
    this.#rows.delete(job);
    $("uploads").hidden = this.#rows.size === 0;
  }

  #acceptDrops() {
    let depth = 0; // enter and leave events also arrive for every child
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
      this.add(event.dataTransfer.files);
    });
  }
}

class Row {
  #text;
  #bar;

  constructor(name) {
    this.item = $("upload-row").content.firstElementChild.cloneNode(true);
    this.item.querySelector(".upload-name").textContent = name;
    this.#text = this.item.querySelector(".upload-text");
    this.#bar = this.item.querySelector("progress");
    this.#bar.setAttribute("aria-label", `Transcribing ${name}`);
    this.button = this.item.querySelector("button");
    this.button.setAttribute("aria-label", `Cancel ${name}`);
  }

  show({ state, fraction, message, take, file }) {
    const text = { waiting: "waiting", running: clockText(take.head), failed: "failed" };
    this.#text.textContent = message || text[state] || "";
    if (fraction === null) this.#bar.removeAttribute("value");
    else this.#bar.value = fraction;
    this.#bar.hidden = state === "failed";
    this.item.classList.toggle("trouble", state === "failed");
    if (state === "failed") this.button.setAttribute("aria-label", `Dismiss ${file.name}`);
  }
}
