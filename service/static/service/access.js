/**
 * The API key of a server that asks for one: held by this tab alone, shown to the server in a
 * header, and turned into a short-lived token if a browser allows no header (websockets).
 */

const STORE = "rse-key";

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
  if (response.status === 401) return ["rse.v1"]; // the websocket is refused then, in words
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  const { token } = await response.json();
  return ["rse.v1", `rse.token.${token}`];
}

let asking = null;

/** Asks the person for a key; resolves with whether one was given. One question at a time. */
export function askForKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

function ask() {
  const dialog = document.createElement("dialog");
  dialog.className = "key-dialog";
  dialog.setAttribute("aria-labelledby", "key-label");
  dialog.innerHTML = `
    <form>
      <label id="key-label" for="key">This server asks for an API key</label>
      <input id="key" type="password" autocomplete="off" spellcheck="false" required />
      <div class="key-buttons">
        <button type="button">Cancel</button>
        <button type="submit">Continue</button>
      </div>
    </form>`;
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
