// What is looked at lives in the part of the address after #, which is never sent to a server: a link can be
// shared, and the browser's back button works.

const LONGEST = 4000; // characters of a text in an address

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const values = new URLSearchParams(query);
  return { view: ["tag", "tree", "bulk"].includes(path) ? path : "tag", values };
}

// Whether a text fits into an address.
export const fits = (text) => text.length <= LONGEST;

export function write(view, values, fresh = false) {
  const all = { ...values, model: model.name };
  const query = new URLSearchParams(Object.entries(all).filter(([, value]) => value !== "" && value != null));
  if (!fits(query.get("text") ?? "")) query.delete("text");
  const hash = `#/${view}${query.size ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  if (fresh) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

// turn: goes up with every change, so that answers about an earlier model can be told.
export const model = { name: null, about: null, turn: 0 };

export const named = (path) => model.name === null ? path
  : `${path}${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model.name)}`;
