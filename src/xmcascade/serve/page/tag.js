// One text: its labels as it is typed, and why.

import { ask } from "./api.js";
import { $, bar, counted, el, fill, later, number } from "./dom.js";
import { fits, model, named, write } from "./state.js";
import { percent, showWhy } from "./why.js";

const WAIT = 180; // ms after the last key
let turn = 0, going = null, answer = null, chosen = { label: null, levels: [] };

export function start(values) {
  $("text").addEventListener("input", () => { soon(); rememberSoon(); });
  $("k").addEventListener("change", () => { remember(); now(); });
  $("auto").addEventListener("change", () => { remember(); now(); });
  $("clear").addEventListener("click", () => { $("text").value = ""; remember(); now(); $("text").focus(); });
  $("share").addEventListener("click", share);
  $("labels").addEventListener("keydown", move);
  restore(values);
}

export function restore(values) {
  const text = values.get("text");
  if (text !== null) $("text").value = text;
  if ([...$("k").options].some((option) => option.value === values.get("k"))) $("k").value = values.get("k");
  $("auto").checked = values.get("likely") === "1";
  chosen = { label: values.get("label"), levels: [] };
  now();
}

export function remember(fresh = false) {
  const k = $("k").value === "5" ? "" : $("k").value;
  write("tag", { text: $("text").value, k, likely: $("auto").checked ? "1" : "", label: chosen.label }, fresh);
  $("count").textContent = counted(Array.from($("text").value).length, "character");
}

const rememberSoon = later(300, () => remember()); // browsers bound how often an address may change

async function share() {
  remember();
  const told = $("share").textContent;
  try {
    if (!fits($("text").value)) throw new Error("too long");
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
  } catch {
    $("share").textContent = fits($("text").value) ? "Copy the address above" : "Too long for a link";
  }
  setTimeout(() => { $("share").textContent = told; }, 1600);
}

const soon = later(WAIT, () => now());

export async function now() {
  soon.cancel();
  going?.abort();
  const own = ++turn, text = $("text").value;
  $("count").textContent = counted(Array.from(text).length, "character");
  if (!text.trim()) {
    answer = null;
    show();
    return;
  }
  going = new AbortController();
  $("busy").hidden = false;
  $("labels").classList.add("stale");
  const asked = { texts: [text], k: Number($("k").value), explain: true };
  if ($("auto").checked) asked.threshold = "auto";
  if (model.name !== null) asked.model = model.name;
  const begun = performance.now();
  try {
    const told = await ask("/v1/predict", asked, going.signal);
    if (own !== turn) return; // a newer text has been asked for
    answer = { found: told.predictions[0], why: told.explanations?.[0] ?? null, timings: told.timings, ms: performance.now() - begun };
    show();
  } catch (error) {
    if (own !== turn) return;
    answer = { found: [], why: null, fault: error.message };
    show();
  }
}

function show() {
  const found = answer?.found ?? [];
  $("busy").hidden = true;
  $("labels").classList.remove("stale");
  if (!found.some((own) => own.label === chosen.label)) chosen = { label: found[0]?.label ?? null, levels: [] };
  fill($("labels"), ...found.map(rowOf));
  $("none").hidden = found.length > 0;
  $("none").textContent = answer?.fault ?? (answer ? "No label is likely enough." : "No text yet.");
  $("start").hidden = answer !== null;
  const timings = answer?.timings;
  $("timing").textContent = timings ? `${timings.work_ms.toFixed(0)} ms in the model, ${timings.queue_ms.toFixed(0)} ms waiting, ${answer.ms.toFixed(0)} ms in all` : "";
  const first = found[0];
  $("said").textContent = first ? `${counted(found.length, "label")}, first ${first.label}, ${percent(first.probability)}` : answer ? $("none").textContent : "";
  explain();
}

function rowOf(own) {
  return el("li", {}, el("button", {
    "aria-pressed": String(own.label === chosen.label), onclick: () => pick(own.label),
    "aria-label": `${own.label}, probability ${percent(own.probability)}`,
  }, el("b", {}, own.label), el("span", {}, percent(own.probability)), bar(own.probability)));
}

function pick(label) {
  chosen = { label, levels: [] };
  for (const button of $("labels").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.querySelector("b").textContent === label));
  }
  remember();
  explain();
}

function explain() {
  const why = answer?.why;
  $("why").hidden = !(why && chosen.label !== null && why.opinions.length);
  if ($("why").hidden) return;
  $("why-label").textContent = chosen.label;
  showWhy($("why-body"), why, chosen.label, chosen.levels, (opinion, level) => {
    chosen.levels[opinion] = level;
    const at = [...$("why-body").querySelectorAll("button")].indexOf(document.activeElement);
    explain();
    if (at >= 0) $("why-body").querySelectorAll("button")[at]?.focus();
  });
}

function move(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const buttons = [...$("labels").querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  next?.focus();
  next?.click();
}

export async function about() {
  const { turn: asked } = model, own = model.about, parts = [counted(own.labels, "label"), `${counted(own.documents, "document")} learnt from`, own.kind];
  if (own.levels.length > 1) parts.push(`a tree of ${own.levels.slice(0, -1).map(number).join(" and ")} clusters`);
  $("about").textContent = `${parts.join(", ")}. Its most frequent labels:`;
  $("auto-box").hidden = own.threshold === null;
  const { labels } = await ask(named("/v1/labels?limit=24"));
  if (asked !== model.turn) return;
  fill($("frequent"), ...labels.map((label) => el("span", {}, label.label)));
}
