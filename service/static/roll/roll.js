/**
 * The piano roll. Time runs to the right and pitch upwards. The keyboard is on the left.
 *
 * `Palette` chooses the colours and opacities of notes. While a take is live, the newest moment stays near
 * the right edge until the user scrolls back. Frames are drawn only while something moves. Events: `seek`
 * with a time, `passage` with a marked {start, end}, and `follow` when the view leaves the newest moment or
 * returns to it.
 */

import { countText, noteName } from "../notes/pitch.js";
import { store } from "../state/store.js";
import { Gestures } from "./gestures.js";
import { Painter, RULER_HEIGHT } from "./painter.js";
import { Palette } from "./palette.js";
import { Viewport } from "./viewport.js";

const HEAD_SHARE = 0.94; // position of the newest moment of a live take, as a share of the width
const EDGE_SHARE = 0.01; // margin before the start of the take and after its end
const MAX_SPAN_S = 600; // maximum span of the view, unless the take is longer
const CURSOR_SHARE = 0.35; // position of the cursor during playback, as a share of the width

export class Roll extends EventTarget {
  #canvas;
  #painter;
  #view = new Viewport();
  #filter;
  #take = null;
  #frame = 0;
  #lastTime = 0;
  #headAt = null; // () => seconds, while the take is live
  #following = false; // true if the newest moment stays in view
  #cursorAt = null; // () => seconds, during playback
  #held = false; // true if the user scrolled during playback, so that the view does not follow
  #cursor = 0;
  #passage = null;
  #marquee = null;
  #counted = false; // true if the notes were counted since they changed
  #onChange = () => this.#changed();
  #onFinish = () => this.fit();

  constructor(canvas, filter) {
    super();
    this.#canvas = canvas;
    this.#filter = filter;
    filter.addEventListener("change", () => this.#take && this.#changed());
    this.#painter = new Painter(canvas);
    new ResizeObserver(() => this.#resize()).observe(canvas);
    Palette.onChange(() => {
      this.#painter.palette = new Palette();
      if (this.#take) this.#draw(); // immediately, because there are no frames while the page is printed
    });
    new Gestures(canvas, this);
    store.subscribe(["selection", "naming"], () => this.#take && this.redraw());
  }

  get take() {
    return this.#take;
  }

  get following() {
    return this.#following;
  }

  get pitchesChosen() {
    return this.#view.pitchesChosen;
  }

  /** {start, span, low, high} of the view, or of its target during an animation. */
  get view() {
    return this.#view.goal;
  }

  show(take) {
    this.#take?.removeEventListener("change", this.#onChange);
    this.#take?.removeEventListener("finish", this.#onFinish);
    this.#take = take;
    take.addEventListener("change", this.#onChange);
    take.addEventListener("finish", this.#onFinish);
    this.#cursor = 0;
    this.#cursorAt = null;
    this.#headAt = null;
    this.#passage = null;
    this.#follow(false);
    this.#view.reset();
    if (!take.live) this.fit();
    this.#changed();
  }

  /** Follow a live take. `headAt` returns the time of its newest moment in seconds. */
  follow(headAt, span = 10) {
    this.#headAt = headAt;
    this.#follow(true);
    this.#track(span);
    this.redraw();
  }

  /** Return to the newest moment of a live take. */
  toNow() {
    if (this.#headAt) this.follow(this.#headAt, this.view.span);
  }

  #follow(following) {
    if (following === this.#following) return;
    this.#following = following;
    this.dispatchEvent(new Event("follow"));
  }

  /** Follow playback. `null` stops the cursor at its position. */
  play(cursorAt) {
    this.#cursorAt = cursorAt;
    this.#held = false;
    this.redraw();
  }

  setCursor(seconds) {
    this.#cursor = seconds;
    const { start, span } = this.#view.goal;
    if (seconds < start || seconds > start + span) this.#pan(seconds - span * CURSOR_SHARE);
    this.redraw();
  }

  /** The looped passage, or null. */
  set passage(passage) {
    this.#passage = passage;
    this.redraw();
  }

  /** {start, end, low, high} of the area that a drag selects, or null. */
  set marquee(box) {
    this.#marquee = box;
    this.redraw();
  }

  get keysWidth() {
    return this.#painter.keysWidth;
  }

  /** Return the position of a pointer in pixels, time and pitch, and the scales. */
  pointAt({ clientX, clientY }, { start, span, low, high } = this.view) {
    const box = this.#canvas.getBoundingClientRect();
    const [x, y] = [clientX - box.left, clientY - box.top];
    const secondsPerPixel = span / (this.#canvas.clientWidth - this.keysWidth);
    const perPitch = (this.#canvas.clientHeight - RULER_HEIGHT) / (high - low + 1);
    const time = start + (x - this.keysWidth) * secondsPerPixel;
    const pitch = high + 1 - (y - RULER_HEIGHT) / perPitch;
    return { x, y, time, pitch, secondsPerPixel, pitchesPerPixel: 1 / perPitch };
  }

  /** Emit `seek` for a time. */
  seek(time) {
    const detail = Math.max(0, Math.min(this.#take.duration, time));
    this.dispatchEvent(new CustomEvent("seek", { detail }));
  }

  fit() {
    this.#view.fitPitches(this.#filter.notesOf(this.#take));
    if (!this.#following) {
      const span = this.#whole;
      this.#view.show(-span * EDGE_SHARE, span);
    }
    this.redraw();
  }

  /** Span in seconds that shows the complete take. */
  get #whole() {
    return Math.max(2, this.#take.duration) * (1 + 2 * EDGE_SHARE);
  }

  zoom(factor, time = this.#anchor()) {
    this.#view.zoomAround(time, factor, Math.max(MAX_SPAN_S, this.#whole));
    if (!this.#following) this.#pan(this.#view.goal.start);
    this.redraw();
  }

  zoomPitches(factor, pitch = (this.view.low + this.view.high) / 2) {
    this.#view.zoomPitches(pitch, factor);
    this.redraw();
  }

  /** Show the time from `start` on. `glide`: false if the user moves the view directly. */
  scroll(start, glide = true) {
    this.#held = true;
    this.#pan(start);
    if (!glide) this.#view.now.start = this.#view.goal.start;
    const { span } = this.view;
    // At its right end a live take is followed again.
    const newest = this.#headAt && Math.min(this.#headAt(), this.#take.duration);
    if (this.#headAt) this.#follow(this.view.start + span >= newest);
    this.redraw();
  }

  scrollPitches(low, glide = true) {
    this.#view.showPitches(low, undefined, glide);
    this.redraw();
  }

  redraw() {
    this.#canvas.classList.toggle("pitches", this.#view.pitchesChosen);
    if (this.#frame) return;
    this.#lastTime = performance.now();
    this.#frame = requestAnimationFrame((now) => this.#tick(now));
  }

  /** The newest moment first crosses the empty roll. Then the roll scrolls. */
  #track(span) {
    this.#view.show(Math.max(-span * EDGE_SHARE, this.#headAt() - span * HEAD_SHARE), span, false);
  }

  #anchor() {
    if (this.#following) return this.#headAt();
    const { start, span } = this.#view.goal;
    const visible = this.#cursor >= start && this.#cursor <= start + span;
    return visible ? this.#cursor : start + span / 2;
  }

  #pan(start) {
    const { span } = this.#view.goal;
    const earliest = -span * EDGE_SHARE;
    const latest = Math.max(earliest, this.#take.duration + span * EDGE_SHARE - span);
    this.#view.show(Math.max(earliest, Math.min(start, latest)));
  }

  #changed() {
    const { notes, open } = this.#take;
    // The last note in the list may start earlier than others, because its decision took longer.
    const sounding = [...open.values(), ...notes.slice(-1)];
    if (this.#take.live) for (const { pitch } of sounding) this.#view.include(pitch);
    this.#counted = false;
    this.redraw();
  }

  #count() {
    if (this.#counted) return;
    this.#counted = true;
    const count = this.#filter.notesOf(this.#take).length;
    this.#canvas.dataset.noteCount = count;
    this.#canvas.dataset.openCount = this.#take.open.size;
    this.#canvas.setAttribute("aria-label", `Piano roll, ${countText(count, "note")}`);
  }

  #resize() {
    this.#painter.resize();
    this.redraw();
  }

  #tick(now) {
    this.#frame = 0;
    const seconds = Math.min(0.1, Math.max(0, (now - this.#lastTime) / 1000));
    this.#lastTime = now;
    if (!this.#take) return;
    if (this.#headAt && this.#following) {
      this.#track(this.#view.goal.span);
    } else if (this.#cursorAt) {
      this.#cursor = this.#cursorAt();
      const { start, span } = this.#view.goal;
      const passage = this.#passage;
      const loops = passage && passage.start >= start && passage.end <= start + span;
      if (!this.#held && !loops) this.#pan(this.#cursor - span * CURSOR_SHARE);
    }
    const moving = this.#view.ease(seconds);
    this.#draw();
    if (moving || this.#headAt || this.#cursorAt) {
      this.#frame = requestAnimationFrame((next) => this.#tick(next));
    }
  }

  #draw() {
    this.#count();
    const { sounding, drawn } = this.#painter.paint({
      take: this.#take,
      view: this.#view.now,
      head: this.#headAt ? this.#headAt() : null,
      cursor: this.#cursor,
      passage: this.#passage,
      filter: this.#filter,
      selection: store.get("selection"),
      marquee: this.#marquee,
    });
    // The attributes are for assistive technology and tests. Writing an unchanged value costs a frame.
    const names = [...sounding.keys()].map(noteName).join(" ");
    if (names !== this.#canvas.dataset.sounding) this.#canvas.dataset.sounding = names;
    if (`${drawn}` !== this.#canvas.dataset.drawnCount) this.#canvas.dataset.drawnCount = drawn;
  }
}
