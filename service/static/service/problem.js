const MAX_LENGTH = 200; // characters of a message

/** The words of an RFC 9457 problem, or of the bare status if there is none. */
export async function problemText(response) {
  try {
    const { detail, title } = await response.json();
    return detail.length > MAX_LENGTH ? `${detail.slice(0, MAX_LENGTH)}…` : detail || title;
  } catch {
    return `The server cannot do this now (${response.status} ${response.statusText}).`;
  }
}

// A full or restarting server, or a proxy with no server up behind it. Not 507, a full disk: that
// seldom passes in seconds, and each attempt sends much of a file again.
export const BUSY = [429, 502, 503, 504];
