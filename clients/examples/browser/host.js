// A host of the ONNX graph in a browser: a recording in, notes out, and nothing leaves the machine.
import * as ort from './node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs';

const PITCHES = 128;
const LOWEST = 21;
const HIGHEST = 108;
const [input, output, canvas, list] = ['input', 'output', 'canvas', 'pre'].map((name) =>
  document.querySelector(name),
);

ort.env.wasm.numThreads = 1; // more need a page that is isolated from other origins
ort.env.wasm.wasmPaths = new URL('./node_modules/onnxruntime-web/dist/', import.meta.url).href;

/** Mono samples at the model's rate; the browser decodes, resamples and mixes. */
async function decode(file, rate) {
  const audio = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  const channels = Array.from({ length: audio.numberOfChannels }, (_, c) => audio.getChannelData(c));
  return channels[0].map((_, i) => channels.reduce((sum, samples) => sum + samples[i], 0) / channels.length);
}

/** Yields the probabilities {frame, head: Float32Array(128)} of every frame of the samples. */
async function* frames(session, about, samples) {
  const { hop, heads, block_frames: block, lookahead_hops: ahead } = about;
  const count = Math.ceil(samples.length / hop);
  let state = {};
  for (const [name, shape] of Object.entries(about.state)) {
    const size = shape.reduce((product, length) => product * length, 1);
    state[name] = new ort.Tensor('float32', new Float32Array(size), [1, ...shape]);
  }
  let frame = about.first_frame;
  for (let start = 0; start < samples.length + (ahead + 1) * hop; start += block * hop) {
    const fresh = new Float32Array(block * hop);
    fresh.set(samples.subarray(start, start + block * hop));
    const outputs = await session.run({ new: new ort.Tensor('float32', fresh, [1, fresh.length]), ...state });
    for (let i = 0; i < block; i += 1, frame += 1) {
      if (frame < 0 || frame >= count) continue;
      const row = (head) => (heads.indexOf(head) * block + i) * PITCHES;
      const of = (head) => outputs.probabilities.data.subarray(row(head), row(head) + PITCHES);
      yield { frame, sounds: of('frame'), onset: of('onset') };
    }
    state = Object.fromEntries(Object.keys(state).map((name) => [name, outputs[`next_${name}`]]));
  }
}

/** A note ends below this probability. */
const OFF = 0.4;

/** Yields {pitch, onset, offset}, in frames, as notes end. */
async function* notes(rows, limit) {
  const began = new Array(PITCHES).fill(null);
  let [older, before] = [new Float32Array(PITCHES), new Float32Array(PITCHES)];
  let last = 0;
  for await (const { frame, sounds, onset } of rows) {
    for (let pitch = 0; pitch < PITCHES; pitch += 1) {
      // A note begins where the probability of an onset has just passed a peak.
      const top = before[pitch];
      const peak = top >= limit.onset_threshold && top > older[pitch] && top >= onset[pitch];
      if (began[pitch] !== null && (peak || sounds[pitch] < OFF)) {
        yield { pitch, onset: began[pitch], offset: last };
        began[pitch] = null;
      }
      if (peak && sounds[pitch] >= limit.frame_on_threshold) began[pitch] = last;
    }
    [older, before, last] = [before, onset.slice(), frame];
  }
  for (const [pitch, onset] of began.entries()) if (onset !== null) yield { pitch, onset, offset: last };
}

async function transcribe(session, about, file) {
  const samples = await decode(file, about.sample_rate);
  const [began, seconds] = [performance.now(), about.hop / about.sample_rate];
  const context = canvas.getContext('2d');
  const [width, height] = [(canvas.width * about.hop) / samples.length, canvas.height / (HIGHEST - LOWEST + 1)];
  context.clearRect(0, 0, canvas.width, canvas.height);
  let count = 0;
  for await (const { pitch, onset, offset } of notes(frames(session, about, samples), about.tracker)) {
    context.fillRect(onset * width, (HIGHEST - pitch) * height, Math.max(1, (offset - onset) * width), height);
    list.append(`${(onset * seconds).toFixed(3)} ${(offset * seconds).toFixed(3)} ${pitch}\n`);
    count += 1;
  }
  const [took, length] = [(performance.now() - began) / 1000, samples.length / about.sample_rate];
  output.value = `${file.name}: ${count} notes in ${length.toFixed(1)} s, computed in ${took.toFixed(1)} s`;
}

const model = new Uint8Array(await (await fetch('live.step.onnx')).arrayBuffer());
const session = await ort.InferenceSession.create(model);
const about = await (await fetch('live.step.onnx.json')).json();
input.addEventListener('change', () => {
  list.textContent = '';
  output.value = 'Listening ...';
  transcribe(session, about, input.files[0]).catch((error) => (output.value = `${error}`));
});
input.disabled = false;
output.value = 'Ready: the network may be cut off.';
