// What is looked at lives in the part of the address after #, which is never sent to a server: a link can be
// shared, and the browser's back button works.

const LONGEST = 4000; // characters of a text in an address

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const values = new URLSearchParams(query);
  return { view: ["tag", "tree", "bulk"].includes(path) ? path : "tag", values };
}

export function write(view, values, fresh = false) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null));
  if ((query.get("text") ?? "").length > LONGEST) query.delete("text");
  const hash = `#/${view}${query.size ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  if (fresh) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

export const model = { name: null, about: null };

export const named = (path) => model.name === null ? path
  : `${path}${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model.name)}`;
