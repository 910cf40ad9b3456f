/**
 * Sends notes to a synthesiser or a DAW over Web MIDI. Each of the first 15 instruments, in the order
 * of their first notes, has its own channel. Later instruments share channels.
 *
 * `silence` ends all sounding notes and is called whenever playing ends, so that no note hangs.
 * Events: `ports` when the list of ports changes.
 */

import { after, cancel } from "../audio/timers.js";
import { hasPedal } from "./instruments.js";
import { channelOf, CONTROL, NOTE_OFF, NOTE_ON, PROGRAM, SUSTAIN } from "./midi.js";

const ALL_NOTES_OFF = 123;
const RELEASE = 64; // release velocity

export class MidiOut extends EventTarget {
  #access = null;
  #chosen = null; // {id, name} of the chosen port, which may be unplugged
  #sounding = new Map(); // key of a sounding note -> {pitch, channel, at}
  #channels = new Map(); // instrument, or "" for none -> channel
  #sentPrograms = new Map(); // channel -> program
  #down = false; // true while the sustain pedal is down
  #waiting = new Map(); // key -> timer of a message to be sent later, e.g. of a note that may be too short

  programs = {}; // instrument -> program

  static get supported() {
    return "requestMIDIAccess" in navigator;
  }

  /** Request access to the ports. Throws an Error whose message the page can show. */
  async open() {
    try {
      this.#access = await navigator.requestMIDIAccess();
    } catch (cause) {
      throw new Error("The browser blocks MIDI. Allow it next to the address.", { cause });
    }
    this.#access.addEventListener("statechange", () => this.#portsChanged());
  }

  /** The ports, [{id, name}], including the chosen port if it is unplugged. */
  get ports() {
    const ports = [...(this.#access?.outputs.values() ?? [])].map(({ id, name }) => ({ id, name }));
    const { id, name } = this.#chosen ?? {};
    return id && !this.#port ? [...ports, { id, name: `${name} (unplugged)` }] : ports;
  }

  get port() {
    return this.#chosen?.id ?? "";
  }

  get #port() {
    return this.#chosen && this.#access.outputs.get(this.#chosen.id);
  }

  choose(id) {
    this.reset();
    this.#chosen = this.ports.find((port) => port.id === id) ?? null;
    this.#sentPrograms.clear();
  }

  /** End all notes and free the channels for the instruments of another take. */
  reset() {
    this.silence();
    this.#channels.clear();
  }

  /** Start a note after `afterS` seconds, unless it ends earlier. */
  noteOn(key, note, afterS = 0) {
    if (!this.#port) return;
    if (afterS === 0) this.#start(key, note);
    else this.#waiting.set(key, after(afterS, () => this.#start(key, note)));
  }

  noteOff(key) {
    cancel(this.#waiting.get(key));
    this.#waiting.delete(key);
    const ended = this.#sounding.get(key);
    if (ended === undefined) return;
    this.#sounding.delete(key);
    const { pitch, channel } = ended;
    // Another note of the pitch may have started before this offset was detected.
    const now = performance.now();
    const held = [...this.#sounding.values()].filter(({ at }) => at <= now);
    if (held.some((note) => note.pitch === pitch && note.channel === channel)) return;
    this.#send([NOTE_OFF | channel, pitch, RELEASE]);
  }

  /** Move the sustain pedal of the instruments that have one, `inSeconds` from now. */
  pedal(down, inSeconds = 0) {
    if (inSeconds > 0) {
      const key = Symbol("move of the pedal");
      const move = () => {
        this.#waiting.delete(key);
        this.pedal(down);
      };
      this.#waiting.set(key, after(inSeconds, move));
      return;
    }
    this.#down = down;
    for (const [instrument, channel] of this.#channels) {
      if (hasPedal(instrument)) this.#sustain(channel);
    }
  }

  /** Play a complete note, which starts `inSeconds` from now. */
  play(note, inSeconds) {
    if (!this.#port) return;
    const key = Symbol("played note");
    this.#start(key, note, performance.now() + 1000 * inSeconds);
    const until = inSeconds + note.offset - note.onset;
    this.#waiting.set(key, after(until, () => this.noteOff(key)));
  }

  /** End all sounding and scheduled notes. A note_on that was sent for a later time cannot be
   * withdrawn, so its note_off follows after 1 ms. */
  silence() {
    for (const timer of this.#waiting.values()) cancel(timer);
    this.#waiting.clear();
    const now = performance.now();
    for (const { pitch, channel, at } of this.#sounding.values()) {
      this.#send([NOTE_OFF | channel, pitch, RELEASE], at > now ? at + 1 : 0);
    }
    this.#sounding.clear();
    this.pedal(false);
    for (const channel of new Set([0, ...this.#channels.values()])) {
      this.#send([CONTROL | channel, ALL_NOTES_OFF, 0]);
    }
  }

  #start(key, { pitch, velocity, instrument }, at = 0) {
    this.#waiting.delete(key);
    const channel = this.#channelOf(instrument ?? "", at);
    this.#sounding.set(key, { pitch, channel, at });
    this.#send([NOTE_ON | channel, pitch, velocity], at);
  }

  /** The channel of an instrument. Its program is sent if the channel has another. */
  #channelOf(instrument, at) {
    let channel = this.#channels.get(instrument);
    if (channel === undefined) {
      channel = channelOf(this.#channels.size);
      this.#channels.set(instrument, channel);
      if (this.#down && hasPedal(instrument)) this.#sustain(channel);
    }
    const program = this.programs[instrument] ?? 0;
    const sent = this.#sentPrograms.get(channel);
    // Notes without an instrument have the program that the user chose, unless another was sent.
    if (program === sent || (!instrument && sent === undefined)) return channel;
    this.#sentPrograms.set(channel, program);
    this.#send([PROGRAM | channel, program], at);
    return channel;
  }

  #sustain(channel) {
    this.#send([CONTROL | channel, SUSTAIN, this.#down ? 127 : 0]);
  }

  #send(message, at = 0) {
    const port = this.#port;
    if (port?.state === "connected") port.send(message, at);
  }

  #portsChanged() {
    if (!this.#port) {
      this.#channels.clear(); // so that the pedal and the programs are sent again when it returns
      this.#sentPrograms.clear();
    }
    this.dispatchEvent(new Event("ports"));
  }
}
