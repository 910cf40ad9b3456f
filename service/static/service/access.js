/**
 * The API key, for servers that require one. Only this tab stores it. Requests send it in a header.
 * Browsers do not allow headers for websockets, so it is exchanged for a short-lived token there.
 */

import { $ } from "../page.js";

const STORE = "rse-key";
const UNAUTHORIZED = 401;

/** The headers of a request. */
export function authorization() {
  const key = sessionStorage.getItem(STORE);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/**
 * The subprotocols to offer for one websocket. They contain a token if there is a key. Throws an Error
 * if the server does not issue a token.
 */
export async function subprotocols() {
  const headers = authorization();
  if (!headers.Authorization) return [];
  const url = new URL("token", document.baseURI);
  const response = await fetch(url, { method: "POST", headers });
  if (response.status === UNAUTHORIZED) return ["rse.v1"]; // the websocket will be rejected with a message
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  const { token } = await response.json();
  return ["rse.v1", `rse.token.${token}`];
}

/**
 * Send a request with the key. If the server rejects it, ask the user for a key and repeat it.
 * @param {string} path
 * @param {{headers?: Record<string, string>} & Omit<RequestInit, "headers">} options
 * @returns {Promise<Response>}
 */
export async function request(path, { headers = {}, ...options } = {}) {
  const url = new URL(path, document.baseURI);
  const response = await fetch(url, { ...options, headers: { ...authorization(), ...headers } });
  return response.status === UNAUTHORIZED && (await askForKey())
    ? request(path, { headers, ...options })
    : response;
}

let asking = null;

/** Ask the user for a key. Resolves with true if the user entered one. Only one dialog is open at a time. */
export function askForKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

function ask() {
  const dialog = $("key-dialog").content.firstElementChild.cloneNode(true);
  document.body.append(dialog);
  const entered = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "entered");
    });
  });
  dialog.querySelector("[type=button]").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(STORE, dialog.querySelector("input").value.trim());
    dialog.close("entered");
  });
  dialog.showModal();
  return entered;
}
