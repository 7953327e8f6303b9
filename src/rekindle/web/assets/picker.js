// The picker. It holds no rule about cards, drivers or releases: it finds the card's class by its name and looks the
// answer up that the resolver gave for that class when the site was made. Answers are text; nothing is set as HTML.
"use strict";
const REKINDLE = (() => {
  const byId = (id) => document.getElementById(id);
  const loaded = new Map();
  const waiting = new Map();
  let known = null;

  const squash = (text) => text.toLowerCase().replace(/[^a-z0-9.+]/g, "");
  const numbers = (version) => version.split(".").map((part) => parseInt(part, 10) || 0);
  const atMost = (one, other) => {
    for (let i = 0; i < Math.max(one.length, other.length); i += 1) {
      const difference = (one[i] || 0) - (other[i] || 0);
      if (difference !== 0) return difference < 0;
    }
    return true;
  };

  // The number of the card that a text means, or -1. What shops and makers put around a name is left out.
  function cardOf(text) {
    const exact = known.names.findIndex((name) => squash(name) === squash(text));
    if (exact >= 0) return exact;
    const around = new Set(known.around);
    const noise = new Set(known.noise);
    const words = text.toLowerCase().split(/[^a-z0-9.+]+/).filter((word) => word && !noise.has(word));
    const inner = words.filter((word) => !around.has(word));
    const plain = inner.filter((word) => !/^\d{1,3}(gb|g|gib)$/.test(word));
    for (const reading of [words, inner, plain]) {
      const found = known.keys[squash(reading.join(" "))];
      if (found !== undefined) return found;
    }
    return -1;
  }

  function nearest(text) {
    const wanted = squash(text);
    return known.names.filter((name) => squash(name).includes(wanted)).slice(0, 12);
  }

  // The answers of a class come as a script: a page that is opened from disk may not fetch.
  function load(file, then) {
    if (loaded.has(file)) { then(loaded.get(file)); return; }
    if (waiting.has(file)) { waiting.set(file, then); return; }
    waiting.set(file, then);
    const script = document.createElement("script");
    script.src = `data/${file}.js`;
    script.onerror = () => { waiting.delete(file); say("This card's answers could not be loaded."); };
    document.head.append(script);
  }

  function answerFor(data, python, driver) {
    let at = 0;
    if (driver) {
      const mine = numbers(driver);
      data.drivers.forEach((step, index) => { if (step !== "" && atMost(numbers(step), mine)) at = index; });
    }
    return data.answers[data.cells[python][at]];
  }

  function say(text) { byId("message").textContent = text; }

  function list(parent, title, items, fill) {
    if (!items || items.length === 0) return;
    const heading = document.createElement("h3");
    heading.textContent = title;
    const ul = document.createElement("ul");
    for (const item of items) {
      const li = document.createElement("li");
      li.textContent = fill(typeof item === "string" ? item : `${item.need}${item.why ? `: ${item.why}` : ""}`);
      ul.append(li);
    }
    parent.append(heading, ul);
  }

  function command(text) {
    const pre = document.createElement("pre");
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(pre.lastChild); button.textContent = "Press Ctrl+C"; }
    });
    const code = document.createElement("code");
    code.textContent = text;
    pre.append(button, code);
    return pre;
  }

  function show(answer, question) {
    const best = answer.recommended;
    const fill = (text) => text.replaceAll(known.card, question.name).replaceAll(known.driver, question.driver);
    byId("headline").textContent = `${question.name} on ${question.os === "windows" ? "Windows" : "Linux"}`;
    byId("notes").textContent = (answer.notes || []).map(fill).join(" ");
    byId("summary").textContent = `${best.route}: ${fill(best.summary || "")}`;
    byId("commands").replaceChildren(...(best.commands || []).map((line) => command(fill(line))));
    const guess = best.estimate;
    byId("takes").textContent = guess ? `${guess.download_gb} GB to download, about ${guess.minutes} minutes` : "";
    const facts = [["torch", best.torch && best.variant ? `${best.torch}+${best.variant}` : best.torch], ["CUDA", best.cuda], ["cuDNN", best.cudnn],
      ["Python", best.python], ["driver", best.driver], ["evidence", best.evidence]];
    byId("facts").replaceChildren(...facts.filter((row) => row[1]).map(([name, value]) => {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      const cell = document.createElement("td");
      head.scope = "row";
      head.textContent = name;
      cell.textContent = fill(String(value));
      row.append(head, cell);
      return row;
    }));
    const lists = byId("lists");
    lists.replaceChildren();
    list(lists, "Why", best.why, fill);
    list(lists, "This route loses", best.loses, fill);
    list(lists, "Not verified", best.unverified, fill);
    list(lists, "Missing", best.missing, fill);
    list(lists, "Not supported on this GPU", best.lacks, fill);
    if (best.change) list(lists, "Smallest change that would help", [best.change.text], fill);
    byId("others-title").hidden = answer.others.length === 0;
    byId("others").replaceChildren(...answer.others.map((route) => {
      const li = document.createElement("li");
      li.textContent = fill(`${route.route}: ${route.summary}`);
      return li;
    }));
    byId("same").textContent = `rekindle plan --gpu "${question.name}" --os ${question.os}`
      + (question.python ? ` --python ${question.python}` : "") + (question.driver ? ` --driver ${question.driver}` : "");
    byId("answer").hidden = false;
  }

  function ask() {
    const text = byId("gpu").value.trim();
    const typed = byId("driver").value.trim();
    const question = { os: byId("os").value, python: byId("python").value, driver: known.branches[typed] || typed };
    byId("answer").hidden = true;
    byId("nearest").replaceChildren();
    say("");
    if (!text) return;
    if (typed && !/^\d{3}(\.\d+){0,2}$/.test(typed)) { say(`"${typed}" is not a driver version: it looks like 560.94.`); return; }
    const number = cardOf(text);
    if (number < 0) {
      const other = known.vendors.find(([pattern]) => new RegExp(pattern, "i").test(text));
      say(other ? `"${text}" ${other[1]}` : `No card called "${text}" is known. Is it one of these?`);
      byId("nearest").replaceChildren(...(other ? [] : nearest(text)).map((name) => {
        const li = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.addEventListener("click", () => { byId("gpu").value = name; ask(); });
        li.append(button);
        return li;
      }));
      return;
    }
    question.name = known.names[number];
    const link = new URLSearchParams({ gpu: text, os: question.os });
    if (question.python) link.set("python", question.python);
    if (typed) link.set("driver", typed);
    history.replaceState(null, "", `#${link}`);
    load(`${known.classes[number]}-${question.os}`, (data) => show(answerFor(data, question.python, question.driver), question));
  }

  function begin() {
    const link = new URLSearchParams(location.hash.slice(1));
    for (const id of ["gpu", "os", "python", "driver"]) if (link.get(id)) byId(id).value = link.get(id);
    byId("gpus").replaceChildren(...known.names.map((name) => { const o = document.createElement("option"); o.value = name; return o; }));
    byId("version").textContent = known.version;
    byId("date").textContent = known.date;
    for (const id of ["gpu", "driver"]) byId(id).addEventListener("input", ask);
    for (const id of ["os", "python"]) byId(id).addEventListener("change", ask);
    window.addEventListener("hashchange", () => { const next = new URLSearchParams(location.hash.slice(1)).get("gpu"); if (next && next !== byId("gpu").value.trim()) { byId("gpu").value = next; ask(); } });
    ask();
  }

  return {
    cards(data) { known = data; begin(); },
    take(file, data) { loaded.set(file, data); const then = waiting.get(file); waiting.delete(file); if (then) then(data); },
  };
})();
