// A file of texts: read here, tagged a few at a time, with progress and cancel; what is done can be kept.

import { ask } from "./api.js";
import { $, counted, el, fill, number } from "./dom.js";
import { asCsv, asJsonLines, parse } from "./files.js";
import { model } from "./state.js";
import { percent } from "./why.js";

const AT_ONCE = 32, TOGETHER = 2, SHOWN = 20, MOST_BYTES = 200e6;
let table = null, name = "texts", results = [], going = null;

export function start() {
  const drop = $("drop");
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });
  $("file").addEventListener("change", () => { take($("file").files[0]); $("file").value = ""; });
  $("column").addEventListener("change", preview);
  $("go").addEventListener("click", run);
  $("cancel").addEventListener("click", () => going?.abort());
  $("as-csv").addEventListener("click", () => save("csv", "text/csv", asCsv));
  $("as-jsonl").addEventListener("click", () => save("jsonl", "application/jsonl", asJsonLines));
}

async function take(file) {
  if (!file) return;
  going?.abort();
  $("job").hidden = false;
  $("results").hidden = true;
  $("meter").hidden = true;
  table = null;
  results = [];
  try {
    if (file.size > MOST_BYTES) throw new Error(`the file has ${number(file.size)} bytes; use the command line for more than ${number(MOST_BYTES)}`);
    table = parse(file.name, decoded(await file.arrayBuffer()));
    if (!table.rows.length) throw new Error("there is no text in it");
  } catch (error) {
    table = null;
    fill($("preview"));
    $("go").disabled = true;
    $("progress").textContent = `${file.name} cannot be used: ${error.message}.`;
    return;
  }
  name = file.name.replace(/\.[^.]*$/, "");
  fill($("column"), ...table.columns.map((column, i) => el("option", { value: i }, column || `column ${i + 1}`)));
  $("column").value = String(likely());
  $("go").disabled = false;
  $("progress").textContent = `${file.name}: ${counted(table.rows.length, "text")}`;
  preview();
}

function decoded(bytes) {
  const [a, b] = new Uint8Array(bytes), wide = a === 0xFF && b === 0xFE ? "utf-16le" : a === 0xFE && b === 0xFF ? "utf-16be" : "utf-8";
  try {
    return new TextDecoder(wide, { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not UTF-8; save it as that");
  }
}

// The column with a telling name, or the one with most in it.
function likely() {
  const known = table.columns.findIndex((column) => /^(text|title|body|content|description|question)$/i.test(column.trim()));
  if (known >= 0) return known;
  const sizes = table.columns.map((_, j) => table.rows.slice(0, 100).reduce((total, row) => total + row[j].length, 0));
  return sizes.indexOf(Math.max(...sizes));
}

async function run() {
  const column = Number($("column").value), texts = table.rows.map((row) => row[column]), own = new AbortController();
  const asked = { k: Number($("bulk-k").value), ...(model.name === null ? {} : { model: model.name }) };
  const { signal } = own, most = model.about.limits.text_characters, begun = performance.now();
  going = own;
  results = [];
  $("go").disabled = true;
  $("cancel").hidden = false;
  $("meter").hidden = false;
  $("results").hidden = true;
  let next = 0, done = 0, fault = null;
  const worker = async () => {
    while (next < texts.length && !signal.aborted) {
      const rows = texts.slice(next, next + AT_ONCE).map((_, i) => next + i);
      next += rows.length;
      const short = rows.filter((i) => Array.from(texts[i]).length <= most);
      for (const i of rows) if (!short.includes(i)) results[i] = { found: [], error: `longer than ${number(most)} characters` };
      await tag(short, texts, asked, signal);
      done += rows.length;
      show(done, texts.length, (performance.now() - begun) / 1000);
    }
  };
  try {
    await Promise.all(Array.from({ length: TOGETHER }, worker));
  } catch (error) {
    fault = signal.aborted ? null : error.message;
    own.abort(); // the other worker too
  }
  if (going !== own || !table) return; // another file has taken its place
  if (signal.aborted) {
    const kept = `${number(results.filter(Boolean).length)} of ${counted(texts.length, "text")}; what is done can be downloaded.`;
    $("progress").textContent = fault ? `Stopped after ${kept} ${fault}` : `Cancelled after ${kept}`;
  }
  $("done").textContent = $("progress").textContent;
  $("go").disabled = false;
  $("cancel").hidden = true;
  $("results").hidden = !results.some(Boolean);
  preview();
}

function show(done, all, seconds) {
  const left = seconds / done * (all - done);
  $("meter").firstElementChild.style.width = `${100 * done / all}%`;
  $("meter").setAttribute("aria-valuenow", Math.round(100 * done / all));
  $("progress").textContent = `${number(done)} of ${counted(all, "text")}, ${(done / Math.max(seconds, 0.001)).toFixed(0)} a second${done < all ? `, about ${Math.ceil(left)} s left` : ""}`;
}

async function tag(rows, texts, asked, signal) {
  if (!rows.length) return;
  try {
    const told = await ask("/v1/predict", { ...asked, texts: rows.map((i) => texts[i]) }, signal);
    rows.forEach((i, at) => { results[i] = { found: told.predictions[at] }; });
  } catch (error) {
    if (![413, 422, 504].includes(error.status)) throw error;
    if (rows.length === 1) {
      results[rows[0]] = { found: [], error: error.message };
      return;
    }
    const half = rows.length >> 1; // one of them is refused, or all are too much together
    await tag(rows.slice(0, half), texts, asked, signal);
    await tag(rows.slice(half), texts, asked, signal);
  }
}

function preview() {
  const column = Number($("column").value);
  const short = (text) => text.length > 240 ? `${text.slice(0, 239)}\u2026` : text;
  fill($("preview"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, table.columns[column] || "text"), el("th", { scope: "col" }, "labels"))),
    el("tbody", {}, ...table.rows.slice(0, SHOWN).map((row, i) => el("tr", {}, el("td", {}, short(row[column])), el("td", {}, ...cellOf(results[i]))))));
}

function cellOf(own) {
  if (!own) return [];
  if (own.error) return [el("span", { class: "wrong" }, own.error)];
  return own.found.map((label) => el("span", { class: "chip", title: percent(label.probability) }, label.label));
}

function save(kind, type, written) {
  const link = el("a", { href: URL.createObjectURL(new Blob([written(table, results)], { type })), download: `${name}-labels.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
