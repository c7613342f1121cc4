// Requests to this server, with the key if it asks for one.

const NAME = "sentence-experts key";
let key = sessionStorage.getItem(NAME) ?? "";
export const keyed = () => key !== "";

const PROFILE = "sentence-experts profile";
let person = localStorage.getItem(PROFILE) ?? "";
/** The profile that marks and taught routes belong to; "" for the server's default. */
export const profile = () => person;
export function openProfile(name) {
  person = name;
  localStorage.setItem(PROFILE, name);
}

export class Refused extends Error {}

/** The answer to a request; `ask` opens the dialog for a key and comes back when there is one. */
export async function send(path, body, {signal, ask, file = false} = {}) {
  for (;;) {
    const headers = body ? {"Content-Type": "application/json"} : {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (person) headers["X-Profile"] = encodeURIComponent(person);
    const answer = await reach(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal});
    if (answer.status === 401 && ask) {
      key = await ask(key !== "");
      if (!key) throw new Refused("This server asks for a key.");
      sessionStorage.setItem(NAME, key);
      continue;
    }
    if (!answer.ok) throw new Refused(await problem(answer));
    return file ? answer.blob() : answer.json();
  }
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it still running?");
  }
}

async function problem(answer) {
  try {
    const content = await answer.json();
    return content.error.message;
  } catch {
    return `The server answered with ${answer.status}.`;
  }
}
