// Asking the server: answers that nobody waits for any more are dropped, a key that has expired is asked for,
// and a server that is busy or gone is asked again.

import { $ } from "./dom.js";

const LONGEST = 10; // seconds until a busy server is asked again

export class Refused extends Error {
  constructor(status, told) {
    super(told.remedy ? `${told.message}. ${told.remedy[0].toUpperCase()}${told.remedy.slice(1)}.` : told.message);
    this.status = status;
  }
}

const pause = (ms, signal) => new Promise((done, stop) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); stop(signal.reason); }, { once: true });
});

export function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// Answers, or throws Refused; an abort throws its own error.
export async function ask(path, body, signal) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    let answer;
    try {
      answer = await fetch(path, {
        method: body === undefined ? "GET" : "POST",
        headers: body === undefined ? {} : { "content-type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal, cache: "no-store", credentials: "same-origin",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      notice("The server does not answer. It is asked again until it does; nothing that you typed is lost.");
      await pause(wait, signal);
      continue;
    }
    if (answer.ok) {
      notice("");
      return answer.status === 204 ? null : answer.json();
    }
    if (answer.status === 401 && path !== "/v1/session") {
      await logIn();
      continue;
    }
    if (answer.status === 429 || answer.status === 503) {
      notice(answer.status === 429 ? "The server is busy. It is asked again in a moment." : "The server is getting ready.");
      await pause(1000 * Math.min(Number(answer.headers.get("retry-after")) || 1, LONGEST), signal);
      continue;
    }
    let told = { message: `the server answered ${answer.status}`, remedy: "" };
    try { told = (await answer.json()).error; } catch { /* not ours: said as it is */ }
    throw new Refused(answer.status, told);
  }
}

let asking = null;

function logIn() {
  asking ??= new Promise((done) => {
    const dialog = $("login"), form = $("login-form");
    const sent = async (event) => {
      event.preventDefault();
      try {
        await ask("/v1/session", { key: $("key").value });
      } catch (error) {
        $("login-wrong").textContent = error.message;
        $("login-wrong").hidden = false;
        $("key").select();
        return;
      }
      form.removeEventListener("submit", sent);
      dialog.removeEventListener("close", stay);
      $("login-wrong").hidden = true;
      $("key").value = "";
      dialog.close();
      asking = null;
      done();
    };
    form.addEventListener("submit", sent);
    const stay = () => { if (asking) dialog.showModal(); }; // it can be closed by its key only
    dialog.addEventListener("close", stay);
    dialog.showModal();
  });
  return asking;
}
