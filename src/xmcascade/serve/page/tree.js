// The label tree: branches are fetched as they are opened, labels can be searched, keys move as in any tree.

import { ask } from "./api.js";
import { $, counted, el, fill, later, number } from "./dom.js";
import { model, named, write } from "./state.js";

const PAGE = 100;
let turn = 0, started = false, labelLevel = 0;

export function start() {
  $("query").addEventListener("input", later(150, search));
  $("tree").addEventListener("keydown", move);
}

export async function open(values) {
  if (!started) await root();
  const path = (values.get("path") ?? "").split(".").filter(Boolean).map(Number);
  if (path.length) await reveal(path);
}

export function forget() {
  started = false;
  turn++;
  fill($("tree"));
  fill($("hits"));
  $("query").value = "";
}

async function root() {
  started = true;
  const asked = model.turn;
  try {
    const told = await ask(named(`/v1/tree?limit=${PAGE}`));
    if (asked !== model.turn) return;
    labelLevel = told.levels.length - 1;
    const sizes = told.levels.slice(0, -1).map(number);
    $("tree-facts").textContent = `${counted(told.levels[labelLevel], "label")}${sizes.length ? `, clusters: ${sizes.join(" \u203A ")}` : ""}`;
    fill($("tree"), ...told.children.map((child) => itemOf(child, 0)));
    more($("tree"), -1, 0, told);
    $("tree").querySelector("[role=treeitem]")?.setAttribute("tabindex", "0");
  } catch (error) {
    fill($("tree"), el("li", { class: "soft" }, error.message));
  }
}

function itemOf(child, level) {
  const leaf = level === labelLevel;
  const facts = leaf ? counted(child.documents, "document") : counted(child.labels, "label");
  const item = el("li", {
    role: "treeitem", tabindex: "-1", class: leaf ? "leaf" : "", "aria-level": level + 1,
    "aria-expanded": leaf ? null : "false", "aria-label": `${child.name}, ${facts}`,
    "data-level": level, "data-node": child.node,
  }, el("div", { class: "row" }, el("b", {}, child.name), el("span", { class: "n" }, facts)));
  item.firstChild.addEventListener("click", () => { focus(item); if (!leaf) toggle(item); });
  return item;
}

async function toggle(item, wanted = item.getAttribute("aria-expanded") !== "true") {
  const { level, node } = item.dataset;
  if (wanted && !item.querySelector(":scope > ul")) {
    const told = await ask(named(`/v1/tree?level=${level}&node=${node}&limit=${PAGE}`));
    if (item.isConnected && !item.querySelector(":scope > ul")) {
      const list = el("ul", { role: "group" }, ...told.children.map((child) => itemOf(child, told.level)));
      item.append(list);
      more(list, level, node, told);
    }
  }
  const list = item.querySelector(":scope > ul");
  if (list) list.hidden = !wanted;
  item.setAttribute("aria-expanded", String(wanted));
}

function more(list, level, node, told) {
  const shown = told.offset + told.children.length;
  if (shown >= told.total) return;
  const button = el("button", { class: "plain more" }, `${number(told.total - shown)} more`);
  const line = el("li", { role: "none" }, button);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const next = await ask(named(`/v1/tree?level=${level}&node=${node}&limit=${PAGE}&offset=${shown}`));
    const known = new Set([...list.children].map((own) => own.dataset.node));
    line.replaceWith(...next.children.filter((child) => !known.has(String(child.node))).map((child) => itemOf(child, next.level)));
    more(list, level, node, next);
  });
  list.append(line);
}

// Opens the way to a node and shows it; the path holds one node of each level.
async function reveal(path) {
  let list = $("tree"), item = null;
  for (const [level, node] of path.entries()) {
    const at = () => [...list.children].find((own) => own.dataset.node === String(node));
    if (!at()) { // beyond what is shown: it alone is fetched
      const above = item ? `level=${item.dataset.level}&node=${item.dataset.node}&` : "";
      const offset = node - Number(list.children[0]?.dataset.node ?? 0);
      const told = await ask(named(`/v1/tree?${above}limit=1&offset=${Math.max(offset, 0)}`));
      if (told.children[0]?.node !== node) return;
      list.insertBefore(itemOf(told.children[0], told.level), list.lastElementChild);
    }
    item = at();
    if (level < labelLevel) {
      await toggle(item, true);
      list = item.querySelector(":scope > ul");
    }
  }
  for (const own of document.querySelectorAll(".here")) own.classList.remove("here");
  item?.classList.add("here");
  item?.firstChild.scrollIntoView({ block: "center" });
  if (item) focus(item, false);
  write("tree", { path: path.join(".") });
}

async function search() {
  const own = ++turn, query = $("query").value.trim();
  if (!query) {
    fill($("hits"));
    return;
  }
  const { labels } = await ask(named(`/v1/labels?limit=12&q=${encodeURIComponent(query)}`));
  if (own !== turn) return;
  fill($("hits"), ...(labels.length ? labels.map((hit) => el("li", {}, el("button", {
    onclick: () => reveal(hit.path),
  }, el("b", {}, hit.label), el("span", {}, counted(hit.documents, "document"))))) : [el("li", { class: "soft" }, "No label has this in its name.")]));
}

function focus(item, really = true) {
  for (const own of $("tree").querySelectorAll('[tabindex="0"]')) own.setAttribute("tabindex", "-1");
  item.setAttribute("tabindex", "0");
  if (really) item.focus();
}

function move(event) {
  const item = event.target.closest("[role=treeitem]");
  if (!item || event.target.tagName === "BUTTON") return;
  const items = [...$("tree").querySelectorAll("[role=treeitem]")].filter((own) => own.offsetParent !== null);
  const at = items.indexOf(item), open_ = item.getAttribute("aria-expanded") === "true";
  const go = (other) => other && focus(other);
  const act = {
    ArrowDown: () => go(items[at + 1]),
    ArrowUp: () => go(items[at - 1]),
    Home: () => go(items[0]),
    End: () => go(items.at(-1)),
    ArrowRight: () => open_ ? go(items[at + 1]) : item.hasAttribute("aria-expanded") && toggle(item, true),
    ArrowLeft: () => open_ ? toggle(item, false) : go(item.parentElement.closest("[role=treeitem]")),
    Enter: () => item.hasAttribute("aria-expanded") && toggle(item),
    " ": () => item.hasAttribute("aria-expanded") && toggle(item),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}
