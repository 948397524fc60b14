// Why a label: the way to it through the tree, and the text with what spoke for it in colour.

import { bar, counted, el, fill } from "./dom.js";

const SHADES = 5, WORDS = 8;
const CAPTIONS = {
  attention: "Colour: how much attention this level pays to each token.",
  parts: "Colour: what speaks for it. Waves: what speaks against it.",
};

export function showWhy(parent, explanation, label, chosen, choose) {
  const why = explanation.labels.find((own) => own.name === label);
  fill(parent, ...(why ? explanation.opinions.map((opinion, i) =>
    opinionOf(explanation.text, opinion, why.paths[i], chosen[i], (level) => choose(i, level))) : []));
}

function opinionOf(text, opinion, path, level, choose) {
  const at = path.findIndex((stop) => stop.level === level);
  const stop = path[at >= 0 ? at : path.length - 1];
  const share = opinion.share < 1 ? el("small", {}, `counts ${Math.round(100 * opinion.share)}%`) : null;
  const parts = [el("h3", {}, opinion.name, share)];
  if (path.length > 1) parts.push(pathOf(path, stop, choose));
  if (stop.tokens.length) {
    parts.push(el("div", { class: "read" }, ...tokensIn(text, opinion, stop)), el("p", { class: "key" }, CAPTIONS[opinion.how]));
  } else if (stop.words.length) {
    parts.push(el("div", { class: "read" }, ...wordsIn(text, stop.words)), el("p", { class: "key" }, CAPTIONS.parts));
  }
  if (stop.words.length) parts.push(barsOf(stop));
  return el("div", { class: "opinion" }, ...parts);
}

function pathOf(path, current, choose) {
  return el("ol", { class: "path", "aria-label": "Way through the label tree" }, ...path.map((stop) =>
    el("li", {}, el("button", {
      "aria-pressed": String(stop === current), title: stop.name, onclick: () => choose(stop.level),
    }, el("b", {}, stop.name), el("small", {},
      `${stop.n_labels > 1 ? counted(stop.n_labels, "label") : "the label"}, ${percent(stop.probability)}`)))));
}

export const percent = (value) => value >= 0.995 || value < 0.0005 ? `${Math.round(100 * value)}%`
  : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`;

// 0 to SHADES: how far each value is above the usual one, of the one that is furthest.
function shadesOf(values, how) {
  const sorted = [...values].sort((a, b) => a - b);
  const usual = how === "attention" ? sorted[sorted.length >> 1] : values.reduce((a, b) => a + b, 0) / values.length;
  const most = Math.max(...values.map((value) => value - usual), 1e-12);
  return values.map((value) => Math.max(0, Math.ceil(SHADES * (value - usual) / most - 0.5)));
}

function marked(text, shade, less) {
  const kind = shade ? `s${Math.min(shade, SHADES)}` : less ? "less" : "";
  return kind ? el("mark", { class: kind }, text) : text;
}

// Places of tokens count characters as Unicode does, not as JavaScript's strings do.
function tokensIn(text, opinion, stop) {
  const letters = Array.from(text), parts = [], shades = shadesOf(stop.tokens, opinion.how);
  let at = 0;
  opinion.tokens.forEach((token, i) => {
    if (token.end <= token.start || token.start < at) return;
    parts.push(letters.slice(at, token.start).join(""));
    const less = opinion.how === "parts" && stop.tokens[i] < 0;
    parts.push(marked(letters.slice(token.start, token.end).join(""), shades[i], less));
    at = token.end;
  });
  const rest = letters.slice(at).join("");
  if (rest.trim()) parts.push(el("span", { class: "unread", title: "Beyond what this opinion reads" }, rest));
  return parts;
}

function wordsIn(text, words) {
  const values = new Map(words.map(({ word, part }) => [word, part]));
  const most = Math.max(...words.map(({ part }) => part), 1e-12), parts = [];
  const found = [...text.matchAll(/[\p{L}\p{N}_]+/gu)];
  let at = 0;
  found.forEach((hit, i) => {
    const word = hit[0].toLowerCase();
    let value = values.get(word) ?? 0;
    for (const pair of [`${word} ${found[i + 1]?.[0].toLowerCase()}`, `${found[i - 1]?.[0].toLowerCase()} ${word}`]) {
      value += (values.get(pair) ?? 0) / 2;
    }
    parts.push(text.slice(at, hit.index), marked(hit[0], Math.max(0, Math.ceil(SHADES * value / most - 0.5)), value < 0));
    at = hit.index + hit[0].length;
  });
  parts.push(text.slice(at));
  return parts;
}

function barsOf(stop) {
  const shown = stop.words.slice(0, WORDS), rest = stop.words.slice(WORDS), most = Math.abs(shown[0].part) || 1;
  const rows = shown.flatMap(({ word, part }) =>
    [el("b", {}, word), bar(Math.abs(part) / most, part < 0 ? "minus" : ""), el("span", {}, signed(part))]);
  const sum = (name, value) => [el("b", { class: "soft" }, name), el("span"), el("span", {}, signed(value))];
  if (rest.length) rows.push(...sum(counted(rest.length, "more word"), rest.reduce((total, { part }) => total + part, 0)));
  rows.push(...sum("before any word", stop.bias));
  return el("div", { class: "bars" }, ...rows);
}

const signed = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;
