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
  results = [];
  try {
    if (file.size > MOST_BYTES) throw new Error(`the file has ${number(file.size)} bytes; use the command line for more than ${number(MOST_BYTES)}`);
    table = parse(file.name, await file.text());
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

// The column with a telling name, or the one with most in it.
function likely() {
  const known = table.columns.findIndex((column) => /^(text|title|body|content|description|question)$/i.test(column.trim()));
  if (known >= 0) return known;
  const sizes = table.columns.map((_, j) => table.rows.slice(0, 100).reduce((total, row) => total + row[j].length, 0));
  return sizes.indexOf(Math.max(...sizes));
}

async function run() {
  const column = Number($("column").value), k = Number($("bulk-k").value), texts = table.rows.map((row) => row[column]);
  going = new AbortController();
  const { signal } = going, most = model.about.limits.text_characters, begun = performance.now();
  results = [];
  $("go").disabled = true;
  $("cancel").hidden = false;
  $("meter").hidden = false;
  $("results").hidden = true;
  let next = 0, done = 0;
  const show = () => {
    const seconds = (performance.now() - begun) / 1000, left = seconds / Math.max(done, 1) * (texts.length - done);
    $("meter").firstElementChild.style.width = `${100 * done / texts.length}%`;
    $("meter").setAttribute("aria-valuenow", Math.round(100 * done / texts.length));
    $("progress").textContent = `${number(done)} of ${counted(texts.length, "text")}, ${(done / Math.max(seconds, 0.001)).toFixed(0)} a second${done < texts.length ? `, about ${Math.ceil(left)} s left` : ""}`;
  };
  const worker = async () => {
    while (next < texts.length && !signal.aborted) {
      const first = next, rows = [];
      next = Math.min(next + AT_ONCE, texts.length);
      for (let i = first; i < next; i++) {
        if (Array.from(texts[i]).length > most) results[i] = { found: [], error: `longer than ${number(most)} characters` };
        else rows.push(i);
      }
      await tag(rows, texts, k, signal);
      done += next - first > 0 ? countDone(first) : 0;
      show();
    }
  };
  const countDone = (first) => Math.min(AT_ONCE, texts.length - first);
  try {
    await Promise.all(Array.from({ length: TOGETHER }, worker));
  } catch (error) {
    if (!signal.aborted) $("progress").textContent = `Stopped: ${error.message}`;
    going.abort(); // the other worker too
  }
  if (signal.aborted) {
    const tagged = results.filter(Boolean).length;
    $("progress").textContent = `Cancelled after ${number(tagged)} of ${counted(texts.length, "text")}; what is done can be downloaded.`;
  }
  $("go").disabled = false;
  $("cancel").hidden = true;
  $("results").hidden = !results.some(Boolean);
  preview();
}

async function tag(rows, texts, k, signal) {
  if (!rows.length) return;
  const asked = { texts: rows.map((i) => texts[i]), k };
  if (model.name !== null) asked.model = model.name;
  try {
    const told = await ask("/v1/predict", asked, signal);
    rows.forEach((i, at) => { results[i] = { found: told.predictions[at] }; });
  } catch (error) {
    if (error.status !== 413 && error.status !== 422) throw error;
    if (rows.length === 1) {
      results[rows[0]] = { found: [], error: error.message };
      return;
    }
    const half = rows.length >> 1; // one of them is refused, or all are too much together
    await tag(rows.slice(0, half), texts, k, signal);
    await tag(rows.slice(half), texts, k, signal);
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
