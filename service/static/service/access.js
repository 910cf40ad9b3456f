/**
 * The API key of a server that asks for one: held by this tab alone, shown to the server in a
 * header, and turned into a short-lived token if a browser allows no header (websockets).
 */

import { $ } from "../page.js";

const STORE = "rse-key";
const UNAUTHORIZED = 401;

/** The headers that a request needs. */
export function authorization() {
  const key = sessionStorage.getItem(STORE);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/**
 * The subprotocols to offer for one websocket; none if no key is known. Throws if there is
 * no token to be had at present.
 */
export async function subprotocols() {
  const headers = authorization();
  if (!headers.Authorization) return [];
  const url = new URL("token", document.baseURI);
  const response = await fetch(url, { method: "POST", headers });
  if (response.status === UNAUTHORIZED) return ["rse.v1"]; // the websocket is refused then, in words
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  const { token } = await response.json();
  return ["rse.v1", `rse.token.${token}`];
}

/**
 * A request of this server with the key; asks for one if it is refused.
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

/** Asks the person for a key; resolves with whether one was given. One question at a time. */
export function askForKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

function ask() {
  const dialog = $("key-dialog").content.firstElementChild.cloneNode(true);
  document.body.append(dialog);
  const given = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "given");
    });
  });
  dialog.querySelector("[type=button]").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(STORE, dialog.querySelector("input").value.trim());
    dialog.close("given");
  });
  dialog.showModal();
  return given;
}
