// The page: views, theme, model; each view has a module of its own.

import { ask, notice } from "./api.js";
import * as bulk from "./bulk.js";
import { $, counted, el, fill } from "./dom.js";
import * as state from "./state.js";
import * as tag from "./tag.js";
import * as tree from "./tree.js";

const VIEWS = ["tag", "tree", "bulk"];

function show({ view, values }) {
  for (const name of VIEWS) {
    const current = name === view, tab = $(`tab-${name}`);
    $(`view-${name}`).hidden = !current;
    tab.setAttribute("aria-selected", String(current));
    tab.setAttribute("tabindex", current ? "0" : "-1");
  }
  if (view === "tree") tree.open(values);
}

function go(view) {
  if (view === "tag") tag.remember(true);
  else state.write(view, {}, true);
  show(state.read());
}

function tabs() {
  for (const name of VIEWS) $(`tab-${name}`).addEventListener("click", () => go(name));
  $("tab-tag").parentElement.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = VIEWS.findIndex((name) => $(`tab-${name}`) === document.activeElement);
    const next = VIEWS[(at + step + VIEWS.length) % VIEWS.length];
    go(next);
    $(`tab-${next}`).focus();
  });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  addEventListener("popstate", () => {
    const now = state.read();
    if (now.view === "tag") tag.restore(now.values);
    show(now);
  });
}

function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => { root.dataset.theme = kept() ?? (dark.matches ? "dark" : "light"); };
  dark.addEventListener("change", apply);
  $("theme").addEventListener("click", () => {
    try { localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { /* not kept */ }
    apply();
  });
  apply();
}

async function about() {
  const { turn } = state.model, own = await ask(state.named("/v1/model"));
  if (turn !== state.model.turn) return; // another one was chosen meanwhile
  state.model.about = own;
  $("facts").textContent = `${own.model} \u00B7 ${counted(own.labels, "label")}`;
  document.title = `${own.model} \u00B7 xmcascade`;
  $("model-pick").hidden = own.models.length < 2;
  fill($("model"), ...own.models.map((name) => el("option", { value: name, selected: name === own.model }, name)));
  await tag.about();
}

$("model").addEventListener("change", async () => {
  state.model.name = $("model").value;
  state.model.turn++;
  tree.forget();
  if (state.read().view === "tag") tag.remember();
  else state.write(state.read().view, {});
  await about();
  tag.now();
  show(state.read());
});

theme();
tabs();
bulk.start();
tree.start();
const first = state.read();
state.model.name = first.values.get("model");
show(first);
try {
  await about();
} catch (error) {
  notice(error.message);
}
tag.start(first.view === "tag" ? first.values : new URLSearchParams());
