/**
 * Sends one recording and reports its notes as the server sends them.
 *
 * `transcribe(file, receive, signal, options)` posts the file and calls `receive` with each message. It
 * resolves with `done`. It throws an Error whose message the page can show, and a BusyError if the
 * server may accept the file later. `options`: the allowed `instruments` (an empty list allows all) and
 * `bends`.
 */

import { request } from "./access.js";
import { BUSY, problemText, retrySeconds } from "./problem.js";

const RESTART_S = 5; // wait for a service that shut down during the transcription
const CUT_OFF = "The connection was lost before the end of the recording.";
const FOREIGN = "Another page answered instead of the service. Reload this page; a network may require you to sign in.";

export class BusyError extends Error {
  constructor(message, seconds) {
    super(message);
    this.seconds = seconds;
  }
}

export async function transcribe(file, receive, signal, { instruments = [], bends = false } = {}) {
  await file.slice(0, 1).arrayBuffer().catch((cause) => {
    throw new Error("The file cannot be read. It is a folder, or it was moved.", { cause });
  });
  const form = new FormData();
  form.append("file", file);
  const query = new URLSearchParams({ answer: "ndjson", updates: "true", bends: String(bends) });
  if (instruments.length) query.set("instruments", instruments.join(","));
  const options = { method: "POST", body: form, signal };
  const response = await request(`transcribe?${query}`, options).catch((cause) => {
    if (signal.aborted) throw cause;
    throw new Error("The server cannot be reached.", { cause });
  });
  if (BUSY.includes(response.status)) throw new BusyError(await problemText(response), retrySeconds(response));
  if (!response.ok) throw new Error(await problemText(response));
  // A proxy or the login page of a network may answer with status 200.
  if (!response.headers.get("Content-Type")?.includes("json")) throw new Error(FOREIGN);

  let done = null;
  for await (const message of jsonLines(response.body)) {
    if (message.type === "done") done = message;
    else if (message.type === "error" && message.retryable) throw new BusyError(message.message, RESTART_S);
    else if (message.type === "error") throw new Error(message.message);
    else receive(message);
  }
  if (!done) throw new Error(CUT_OFF);
  return done;
}

async function* jsonLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((cause) => {
      throw new Error(CUT_OFF, { cause }); // the messages of browsers are not informative
    });
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.trim()) yield parsed(line);
  }
  if (rest.trim()) yield parsed(rest);
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new Error(CUT_OFF, { cause });
  }
}
