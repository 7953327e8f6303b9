// Reads the file of `rekindle knowledge export --as table`: which PyTorch for this card, system, Python and driver.
//
//     node reader.mjs table.json "GTX 1080 Ti" windows 3.12 566.36
//
// No dependencies; copy it into your installer. The types are in table.d.ts (`--as types`).
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** The answer for a card. `python` and `driver` empty: not known. */
export function find(table, card, system, python = "", driver = "") {
  if (table.schema !== "rekindle.table/1") throw new Error(`this reader does not know ${table.schema}`);
  const byPython = table.classes[classOf(table, card)][system];
  if (!(python in byPython)) throw new Error(`Python ${python} is not in the table`);
  const steps = table.steps[byPython[python]];
  let row = steps[0][1];
  if (driver) for (const [first, number] of steps.slice(1)) if (compare(first, driver) <= 0) row = number;
  const entries = Object.entries(table.rows[row]);
  return Object.fromEntries(entries.map(([key, value]) => [key, filled(table.marks, value, card, driver)]));
}

/** What pip is told, one list for each call; empty where nothing is ready-made. */
export function pip(answer) {
  if (!answer.pins) return [];
  const index = answer.index ? ["--index-url", answer.index] : [];
  const first = answer.first ? [["install", answer.first]] : [];
  return [...first, ["install", ...answer.pins, ...index]];
}

function classOf(table, card) {
  const plain = card.trim().toLowerCase();
  for (const name of [plain, `geforce ${plain}`, `nvidia ${plain}`, plain.replace(/^nvidia /, "")]) {
    if (Object.hasOwn(table.names, name)) return table.names[name];
  }
  const pci = plain.replace(/^10de:/, "");
  if (Object.hasOwn(table.pci, pci)) return table.pci[pci];
  throw new Error(`${card} is not in the table`);
}

function compare(one, other) {
  const [left, right] = [one.split(".").map(Number), other.split(".").map(Number)];
  for (let at = 0; at < Math.max(left.length, right.length); at += 1) {
    const difference = (left[at] ?? 0) - (right[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function filled(marks, value, card, driver) {
  if (Array.isArray(value)) return value.map((each) => filled(marks, each, card, driver));
  return typeof value === "string" ? value.replaceAll(marks.card, card).replaceAll(marks.driver, driver) : value;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    const found = find(JSON.parse(readFileSync(process.argv[2], "utf-8")), ...process.argv.slice(3));
    console.log(JSON.stringify({ ...found, pip: pip(found) }, null, 2));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
