/**
 * What the network hears: the probability of every pitch in every frame, drawn behind the notes.
 * The newest ten minutes are kept, as pictures of a few seconds each.
 */

const TILE_FRAMES = 256; // 3 s at 86 frames a second
const MAX_TILES = 210; // 90 kB each
const COLOUR = [208, 156, 52]; // on paper and in the dark
const STRENGTH = 0.7; // opacity of certainty
const FAINTEST = 8; // of 255: below it the picture would only be grey

export class Heat {
  #frameSeconds;
  #lowest = 0;
  #pitches = 0;
  #tiles = new Map(); // index -> context of a canvas, oldest first

  constructor(frameSeconds) {
    this.#frameSeconds = frameSeconds;
  }

  /** Frames from `time` seconds on: `bytes` has `pitches` of them for each, from `lowest` up. */
  add(time, { lowest, pitches, bytes }) {
    this.#lowest = lowest;
    this.#pitches = pitches;
    const column = new ImageData(1, pitches);
    let frame = Math.max(0, Math.round(time / this.#frameSeconds));
    for (let first = 0; first < bytes.length; first += pitches, frame += 1) {
      for (let pitch = 0; pitch < pitches; pitch += 1) {
        const value = bytes[first + pitch];
        const opacity = value < FAINTEST ? 0 : STRENGTH * value;
        column.data.set([...COLOUR, opacity], 4 * (pitches - 1 - pitch));
      }
      const index = Math.floor(frame / TILE_FRAMES);
      const tile = this.#tiles.get(index) ?? this.#addTile(index);
      tile.putImageData(column, frame % TILE_FRAMES, 0);
    }
  }

  /** `layout` as the painter has it: start, end, x(time), rows. */
  draw(context, { start, end, x, rows }) {
    const span = TILE_FRAMES * this.#frameSeconds;
    const top = rows.top(this.#lowest + this.#pitches - 1);
    const height = rows.height * this.#pitches;
    context.imageSmoothingEnabled = x(start + this.#frameSeconds) - x(start) < 1;
    for (const [index, { canvas }] of this.#tiles) {
      const left = (index * TILE_FRAMES - 0.5) * this.#frameSeconds; // a frame lies about its time
      if (left > end || left + span < start) continue;
      context.drawImage(canvas, x(left), top, x(start + span) - x(start), height);
    }
  }

  #addTile(index) {
    const tile = new OffscreenCanvas(TILE_FRAMES, this.#pitches).getContext("2d");
    this.#tiles.set(index, tile);
    if (this.#tiles.size > MAX_TILES) this.#tiles.delete(this.#tiles.keys().next().value);
    return tile;
  }
}
