/**
 * What the network hears: the probability of every pitch in every frame, drawn behind the notes.
 *
 * Frames are kept as bytes in tiles of a few seconds, the newest hour of them; only those in view
 * have a picture, and a view of more than ten minutes has none.
 */

const TILE_FRAMES = 256; // 3 s at 86 frames a second
const MAX_TILES = 1200; // 22 kB each
const MAX_PICTURES = 210; // 90 kB each: ten minutes
const STRENGTH = 0.7; // opacity of certainty
const FAINTEST = 8; // of 255: below it the picture would only be grey

export class Heat {
  #frameSeconds;
  #lowest = 0;
  #pitches = 0;
  #tiles = new Map(); // index -> {bytes, canvas, colour, fresh}, oldest first
  #pictures = []; // tiles that have a canvas, oldest first
  #scratch = null; // ImageData in which each is made

  constructor(frameSeconds) {
    this.#frameSeconds = frameSeconds;
  }

  /** Frames from `time` seconds on: `bytes` has `pitches` of them for each, from `lowest` up. */
  add(time, { lowest, pitches, bytes }) {
    this.#lowest = lowest;
    this.#pitches = pitches;
    const first = Math.max(0, Math.round(time / this.#frameSeconds));
    for (let at = 0; at * pitches < bytes.length; at += 1) {
      const index = Math.floor((first + at) / TILE_FRAMES);
      const tile = this.#tiles.get(index) ?? this.#addTile(index);
      const column = (first + at) % TILE_FRAMES;
      tile.bytes.set(bytes.subarray(at * pitches, (at + 1) * pitches), column * pitches);
      tile.fresh = false;
    }
  }

  /** `layout` as the painter has it: start, end, x(time), rows; `colour` [red, green, blue]. */
  draw(context, { start, end, x, rows }, colour) {
    const span = TILE_FRAMES * this.#frameSeconds;
    if (end - start > (MAX_PICTURES - 1) * span) return; // all would be redrawn for every frame
    const top = rows.top(this.#lowest + this.#pitches - 1);
    const height = rows.height * this.#pitches;
    context.imageSmoothingEnabled = x(start + this.#frameSeconds) - x(start) < 1;
    for (let index = Math.max(0, Math.floor(start / span)); index * span < end; index += 1) {
      const tile = this.#tiles.get(index);
      if (!tile) continue;
      if (!tile.fresh || tile.colour !== colour) this.#render(tile, colour);
      // A frame lies about its time, not after it.
      const left = x((index * TILE_FRAMES - 0.5) * this.#frameSeconds);
      context.drawImage(tile.canvas, left, top, x(start + span) - x(start), height);
    }
  }

  #addTile(index) {
    const bytes = new Uint8Array(TILE_FRAMES * this.#pitches);
    const tile = { bytes, canvas: null, colour: null, fresh: false };
    this.#tiles.set(index, tile);
    if (this.#tiles.size > MAX_TILES) this.#tiles.delete(this.#tiles.keys().next().value);
    return tile;
  }

  #render(tile, colour) {
    if (!tile.canvas) {
      tile.canvas = new OffscreenCanvas(TILE_FRAMES, this.#pitches);
      this.#pictures.push(tile);
      if (this.#pictures.length > MAX_PICTURES) {
        const oldest = this.#pictures.shift();
        oldest.canvas = null;
        oldest.fresh = false;
      }
    }
    this.#scratch ??= new ImageData(TILE_FRAMES, this.#pitches);
    const picture = this.#scratch;
    picture.data.fill(0);
    for (let column = 0; column < TILE_FRAMES; column += 1) {
      for (let pitch = 0; pitch < this.#pitches; pitch += 1) {
        const value = tile.bytes[column * this.#pitches + pitch];
        if (value < FAINTEST) continue;
        const at = 4 * ((this.#pitches - 1 - pitch) * TILE_FRAMES + column);
        picture.data.set(colour, at);
        picture.data[at + 3] = STRENGTH * value;
      }
    }
    tile.canvas.getContext("2d").putImageData(picture, 0, 0);
    tile.colour = colour;
    tile.fresh = true;
  }
}
