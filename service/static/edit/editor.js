/**
 * The editor of the take in view: runs commands on the selected notes. They come from the toolbar, the
 * keyboard, the roll and the list of notes. Every edit is audible immediately.
 */

import { labelOf } from "../notes/instruments.js";
import { clockText, noteName } from "../notes/pitch.js";
import { $ } from "../page.js";
import { store } from "../state/store.js";
import { onGrid } from "./beats.js";
import * as commands from "./commands.js";

const VELOCITY_STEP = 8;
const NEW_LENGTH_S = 0.3; // duration of an added note if there are no beats
const NEW_VELOCITY = 80;
const FREE_STEP_S = 0.02; // without a grid

export class Editor {
  #player;
  #filter;
  #showStatus;

  constructor({ player, filter, showStatus }) {
    this.#player = player;
    this.#filter = filter;
    this.#showStatus = showStatus;
    const press = (id, act) => $(id).addEventListener("click", act);
    press("edit", () => store.set({ editing: !store.get("editing"), selection: new Set() }));
    press("undo", () => this.undo());
    press("redo", () => this.redo());
    press("edit-delete", () => this.#on(commands.remove));
    press("edit-split", () => this.#split());
    press("edit-join", () => this.#on(commands.join));
    press("edit-several", () => store.set({ several: !store.get("several") }));
    press("edit-all", () => this.select(this.notes));
    press("edit-add", () => this.#addAtCursor());
    press("edit-restore", () => this.restore());
    press("delete-hidden", () => this.#deleteHidden());
    $("snap").addEventListener("change", () => store.set({ snap: $("snap").checked }));
    $("edit-velocity").addEventListener("change", ({ target: { value } }) => {
      if (value) this.#on((notes) => commands.setVelocity(notes, Number(value)));
      this.#show();
    });
    $("edit-instrument").addEventListener("change", () =>
      this.#on((notes) => commands.setInstrument(notes, $("edit-instrument").value)),
    );
    store.subscribe(["take", "editing", "selection", "several"], () => this.#show());
    filter.addEventListener("change", () => this.#deselectHidden());
    document.addEventListener("keydown", (event) => this.#key(event), { capture: true });
  }

  get #take() {
    return store.get("take");
  }

  /** Notes that can be edited: the filter shows them. */
  get notes() {
    return this.#filter.notesOf(this.#take);
  }

  select(notes) {
    store.set({ selection: new Set(notes) });
  }

  /** Deselect hidden notes, so that no edit changes them. */
  #deselectHidden() {
    const selection = store.get("selection");
    const shown = this.notes.filter((note) => selection.has(note));
    if (shown.length < selection.size) this.select(shown);
    this.#show();
  }

  toggle(note) {
    const selection = new Set(store.get("selection"));
    if (!selection.delete(note)) selection.add(note);
    this.select(selection);
  }

  selectWhere(condition, more = false) {
    this.select([...(more ? store.get("selection") : []), ...this.notes.filter(condition)]);
  }

  sound(note) {
    this.#player.audition(note);
  }

  /**
   * Run a command and select its new notes. Play the first of them unless `quiet`. Return false if the
   * command changes nothing. With `again` it replaces the last command of its kind, changed or not.
   */
  run(command, { again = false, quiet = false } = {}) {
    if (!again && !commands.changes(command)) return false;
    this.#take.edit(command, { again });
    this.#after(command, quiet);
    return true;
  }

  #after(command, quiet = false) {
    const fresh = command.pairs.map(([, after]) => after).filter(Boolean);
    this.select(command.pairs.length ? fresh : store.get("selection")); // views show the beats too
    if (fresh.length && !quiet) this.sound(fresh[0]);
    this.#player.refresh();
    this.#show();
  }

  undo() {
    const { done } = this.#take.history;
    const command = this.#take.undo();
    if (!command) return;
    this.#showStatus(`Undone: ${command.label.toLowerCase()}. ${done.length ? "" : "This is the transcription without edits."}`);
    this.#after(command);
  }

  redo() {
    const command = this.#take.redo();
    if (!command) return;
    this.#showStatus(`Redone: ${command.label.toLowerCase()}.`);
    this.#after(command);
  }

  restore() {
    this.#take.restoreTranscription();
    this.select([]);
    this.#player.refresh();
    this.#show();
  }

  addAt(time, pitch, free = false) {
    time = Math.max(0, time);
    const { beats } = this.#take;
    const grid = onGrid(beats, time);
    const onset = store.get("snap") && !free ? grid.time : time;
    const length = beats.length > 1 ? 2 * grid.step : NEW_LENGTH_S;
    const like = [...store.get("selection")][0] ?? this.#nearest(onset);
    this.run(
      commands.add({
        pitch,
        velocity: like?.velocity ?? NEW_VELOCITY,
        instrument: like?.instrument ?? null,
        onset,
        offset: onset + length,
      }),
    );
  }

  #nearest(time) {
    return this.notes.findLast(({ onset }) => onset <= time) ?? this.notes[0];
  }

  #addAtCursor() {
    const like = [...store.get("selection")][0] ?? this.#nearest(this.#player.position);
    this.addAt(this.#player.position, like?.pitch ?? 60);
  }

  #on(make) {
    const selection = store.get("selection");
    if (selection.size) this.run(make(selection));
  }

  /** Split notes at the cursor, or in the middle if the cursor is not in the note. */
  #split() {
    const at = this.#player.position;
    const notes = [...store.get("selection")];
    const crossed = notes.filter(({ onset, offset }) => onset < at && at < offset);
    if (crossed.length) this.run(commands.split(crossed, at));
    else if (notes.length) {
      const pairs = notes.flatMap((note) => commands.split([note], (note.onset + note.offset) / 2).pairs);
      this.run({ label: "Split", pairs });
    }
  }

  #deleteHidden() {
    const shown = new Set(this.notes);
    this.run(commands.remove(this.#take.notes.filter((note) => !shown.has(note))));
  }

  /** Return the seconds by which an arrow key moves notes: a step of the grid, or FREE_STEP_S. */
  #shift(event, direction) {
    const first = [...store.get("selection")][0];
    if (!first) return 0;
    const { beats } = this.#take;
    if (!store.get("snap") || event.altKey || beats.length < 2) return direction * FREE_STEP_S;
    return direction * onGrid(beats, first.onset).step;
  }

  #key(event) {
    const writes = "input:not([type=checkbox], [type=range]), select, textarea";
    if (!store.get("editing") || event.target.matches?.(writes)) return;
    const bare = event.target === document.body && !$("roll-frame").hidden;
    const roll = bare || event.target === $("roll");
    const command = event.ctrlKey || event.metaKey;
    const deletes = ["Delete", "Backspace"].includes(event.key);
    const tools = event.target.closest?.(command || deletes ? "#notes-panel, .stage" : "#notes-panel, .edit-bar");
    if (!roll && (!tools || (event.target.matches("input") && !command && !deletes))) return;
    const has = store.get("selection").size > 0;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const key = event.key.toLowerCase();
    let act = null;
    if (command && key === "z") act = () => (event.shiftKey ? this.redo() : this.undo());
    else if (command && key === "y") act = () => this.redo();
    else if (command && key === "a") act = () => this.select(this.notes);
    else if (command) return;
    else if (side && has && event.shiftKey) {
      act = () => this.#on((notes) => commands.stretch(notes, "offset", this.#shift(event, side)));
    } else if (side && has) act = () => this.#on((n) => commands.move(n, this.#shift(event, side), 0));
    else if (up && has) act = () => this.#on((n) => commands.move(n, 0, event.shiftKey ? 12 * up : up));
    else if (has && (key === "delete" || key === "backspace")) act = () => this.#on(commands.remove);
    else if (has && key === "escape") act = () => this.select([]);
    else if (has && key === "s") act = () => this.#split();
    else if (has && key === "j") act = () => this.#on(commands.join);
    else if (has && key === "[") act = () => this.#on((n) => commands.louder(n, -VELOCITY_STEP));
    else if (has && key === "]") act = () => this.#on((n) => commands.louder(n, VELOCITY_STEP));
    else if (roll && (key === "n" || key === "p")) act = () => this.#step(key === "n" ? 1 : -1, event.shiftKey);
    else if (roll && key === "enter") act = () => this.#addAtCursor();
    if (!act) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    act();
  }

  /** Select the note after or before the last selected note; `more`: in addition to the selection. */
  #step(direction, more) {
    const { notes } = this;
    const selection = [...store.get("selection")];
    const selected = selection.at(-1);
    const at = selected ? notes.indexOf(selected) + direction : notes.indexOf(this.#nearest(this.#player.position));
    const note = notes[Math.max(0, Math.min(notes.length - 1, at))];
    if (!note) return;
    this.select(more ? [...selection, note] : [note]);
    this.sound(note);
  }

  #show() {
    const take = this.#take;
    if (!take) return;
    const editing = store.get("editing") && !take.live;
    const selection = store.get("selection");
    $("edit").setAttribute("aria-pressed", String(editing));
    $("edit-bar").hidden = !editing;
    $("edit-several").setAttribute("aria-pressed", String(store.get("several")));
    $("roll").classList.toggle("editing", editing);
    $("undo").disabled = !take.history.done.length;
    $("redo").disabled = !take.history.undone.length;
    $("edit-restore").disabled = !take.edited;
    const [first] = selection;
    for (const id of ["edit-delete", "edit-split", "edit-velocity", "edit-instrument"]) $(id).disabled = !first;
    $("edit-join").disabled = selection.size < 2;
    const hidden = take.live ? 0 : take.notes.length - this.notes.length;
    $("delete-hidden").disabled = hidden === 0;
    const one = first && `${noteName(first.pitch)} at ${clockText(first.onset)}`;
    $("edit-count").textContent = selection.size > 1 ? `${selection.size} selected` : one || "None selected";
    if (!first) return;
    $("edit-velocity").value = first.velocity;
    const names = new Set(["", ...Object.keys(take.programs), first.instrument ?? ""]);
    $("edit-instrument").hidden = names.size < 2;
    $("edit-instrument").replaceChildren(
      ...[...names].map((name) => new Option(labelOf(name) || "no instrument", name, false, name === (first.instrument ?? ""))),
    );
  }
}
