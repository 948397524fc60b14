// Files of texts, read in the browser: CSV and TSV with quotes, JSON Lines, plain lines; and back as files.

export function parse(name, text) {
  text = text.replace(/^\uFEFF/, "");
  const kind = name.toLowerCase().split(".").pop();
  if (["jsonl", "ndjson", "json"].includes(kind)) return fromJson(text);
  if (kind === "csv" || kind === "tsv") return fromTable(text, kind === "tsv" ? "\t" : separatorOf(text));
  return { columns: ["text"], rows: text.split(/\r?\n/).filter((line) => line.trim()).map((line) => [line]) };
}

function separatorOf(text) {
  const head = text.slice(0, text.search(/[\r\n]/) >>> 0);
  const counts = [",", ";", "\t"].map((mark) => [head.split(mark).length, mark]);
  return counts.sort((a, b) => b[0] - a[0])[0][1];
}

export function fromTable(text, mark) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  const end = () => { row.push(cell); cell = ""; };
  for (let i = 0; i < text.length; i++) {
    const letter = text[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[i + 1] === '"') { cell += '"'; i++; }
      else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === mark) end();
    else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[i + 1] === "\n") i++;
      end();
      if (row.length > 1 || row[0] !== "") rows.push(row);
      row = [];
    } else cell += letter;
  }
  if (quoted) throw new Error("a quotation in this file has no end");
  if (cell !== "" || row.length) { end(); rows.push(row); }
  const [columns = [], ...rest] = rows;
  const wrong = rest.findIndex((own) => own.length !== columns.length);
  if (wrong >= 0) throw new Error(`row ${wrong + 2} has ${rest[wrong].length} cells, the first one has ${columns.length}`);
  return { columns, rows: rest };
}

function fromJson(text) {
  let told;
  try {
    told = text.trimStart().startsWith("[") ? JSON.parse(text) : null;
  } catch { told = null; }
  told ??= text.split(/\r?\n/).map((line, i) => {
    if (!line.trim()) return null;
    try { return JSON.parse(line); } catch { throw new Error(`line ${i + 1} is not JSON`); }
  }).filter((own) => own !== null);
  const objects = told.map((own) => own !== null && typeof own === "object" ? own : { text: String(own) });
  const columns = [...new Set(objects.slice(0, 200).flatMap(Object.keys))];
  const cell = (value) => value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return { columns, rows: objects.map((own) => columns.map((column) => cell(own[column]))) };
}

// A cell that a spreadsheet would take for a formula is kept from it by an apostrophe.
const quoted = (value) => {
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",;\r\n\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function asCsv({ columns, rows }, results) {
  const lines = [[...columns, "predicted_labels", "probabilities", "error"]];
  rows.forEach((row, i) => {
    const own = results[i] ?? { found: [], error: "not tagged" };
    lines.push([...row, own.found.map((label) => label.label).join("; "),
      own.found.map((label) => label.probability.toFixed(4)).join("; "), own.error ?? ""]);
  });
  return lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

export function asJsonLines({ columns, rows }, results) {
  return rows.map((row, i) => {
    const own = results[i] ?? { found: [], error: "not tagged" };
    const told = Object.fromEntries(columns.map((column, j) => [column, row[j]]));
    const labels = own.found.map(({ label, probability }) => ({ label, probability }));
    return JSON.stringify({ ...told, predictions: labels, ...(own.error ? { error: own.error } : {}) });
  }).join("\n") + "\n";
}
