// Elements out of plain values. Text only ever enters as text: nothing here parses HTML.

export const $ = (id) => document.getElementById(id);

export function el(name, props = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const fill = (parent, ...children) => parent.replaceChildren(...children.filter((child) => child != null));

export const number = (value) => value.toLocaleString("en");

export const counted = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

export function bar(share, kind = "") {
  const inner = el("u");
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return el("i", { class: kind, "aria-hidden": "true" }, inner);
}

export function later(wait, action) {
  let timer;
  const asked = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), wait);
  };
  asked.cancel = () => clearTimeout(timer);
  return asked;
}
