// Follows a build by server-sent events. Everything that comes is set as text. When the server is gone (the build was
// killed) the browser asks again by itself; a resumed build on the same port is taken up with its whole timeline.
"use strict";
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const KINDS = { "CUDA": "cuda", "C++": "cxx", "C": "c", "link": "link", "other": "other" };
let run = "";
let bars = [];

function time(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}
const size = (bytes) => (bytes === null || bytes === undefined ? "-" : bytes < 2 ** 30 ? `${Math.round(bytes / 2 ** 20)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`);

function rows(id, data) {
  byId(id).replaceChildren(...data.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text) => { const cell = document.createElement("td"); cell.textContent = text; return cell; }));
    return row;
  }));
}

function draw(added) {
  const svg = byId("drawn");
  const wall = Math.max(1, ...bars.map((bar) => bar.start + bar.seconds));
  const slots = 1 + Math.max(0, ...bars.map((bar) => bar.slot));
  svg.setAttribute("viewBox", `0 0 1000 ${slots * 14 + 4}`);
  for (const bar of added) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", `k-${KINDS[bar.kind] || "other"}`);
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${bar.name}${bar.target ? ` (${bar.target})` : ""}: ${time(bar.seconds)}`;
    rect.append(title);
    svg.append(rect);
  }
  Array.from(svg.children).forEach((rect, index) => {
    const bar = bars[index];
    rect.setAttribute("x", String((bar.start / wall) * 1000));
    rect.setAttribute("y", String(bar.slot * 14 + 1));
    rect.setAttribute("width", String(Math.max(0.3, (bar.seconds / wall) * 1000)));
    rect.setAttribute("height", "12");
  });
}

function show(state) {
  if (state.run !== run) { run = state.run; bars = []; byId("drawn").replaceChildren(); }
  if (state.bars.length) { bars.push(...state.bars); draw(state.bars); }
  const share = state.share ?? (state.total ? state.done / state.total : 0);
  byId("link").textContent = state.ended || "Live";
  byId("bar").value = state.ended ? 1 : share;
  byId("percent").textContent = `${Math.round((state.ended ? 1 : share) * 100)} %`;
  byId("left").textContent = state.left === null ? "" : `about ${time(state.left)} left`;
  byId("step").textContent = state.step || "-";
  byId("steps-of").textContent = state.of ? `step ${state.number} of ${state.of}, for ${time(state.seconds)}` : "step";
  byId("files").textContent = state.total ? `${state.done} of ${state.total}` : String(state.count);
  byId("running-count").textContent = state.jobs ? `${state.running.length} of ${state.jobs}` : String(state.running.length);
  byId("waiting").textContent = String(state.waiting);
  byId("memory").textContent = size(state.memory_free);
  byId("disk").textContent = size(state.disk_free);
  byId("line").textContent = state.last_line;
  rows("running", state.running.map((job) => [job.name, time(job.seconds), size(job.memory)]));
  rows("steps", state.steps.map((step) => [step.at, String(step.run), step.name, step.outcome, step.seconds === null ? "" : time(step.seconds)]));
}

const source = new EventSource("/events");
source.addEventListener("message", (event) => {
  const state = JSON.parse(event.data);
  show(state);
  if (state.ended) { source.close(); setTimeout(() => location.reload(), 300); }
});
source.addEventListener("error", () => { byId("link").textContent = "The build does not answer. Waiting for it to be resumed ..."; });
