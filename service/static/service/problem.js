const MAX_LENGTH = 200; // characters of a message

/** The message of an RFC 9457 problem, or a text for the status if the response has none. */
export async function problemText(response) {
  try {
    const { detail, title } = await response.json();
    return detail.length > MAX_LENGTH ? `${detail.slice(0, MAX_LENGTH)}…` : detail || title;
  } catch {
    return `The server cannot do this now (${response.status} ${response.statusText}).`;
  }
}

// A server that is full or restarting, or a proxy without a server. Not 507 (disk full), which rarely
// ends within seconds, while each retry sends much of a file again.
export const BUSY = [429, 502, 503, 504];
const DEFAULT_RETRY_S = 5; // if the response has no Retry-After
const MAX_RETRY_S = 60;

/** The pause in seconds before a retry. */
export const retrySeconds = ({ headers }) =>
  Math.min(MAX_RETRY_S, Number(headers.get("Retry-After")) || DEFAULT_RETRY_S);
