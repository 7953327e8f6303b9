// The picker. It holds no rule about cards, drivers or releases: it finds the card's class by its name and looks the
// answer up that the resolver gave for that class when the site was made. Answers are text; nothing is set as HTML.
"use strict";
const REKINDLE = (() => {
  const byId = (id) => document.getElementById(id);
  const loaded = new Map();
  const waiting = new Map();
  const chosenForm = new Map();
  let known = null;
  let readCard = null;

  const numbers = (version) => version.split(".").map((part) => parseInt(part, 10) || 0);
  const atMost = (one, other) => {
    for (let i = 0; i < Math.max(one.length, other.length); i += 1) {
      const difference = (one[i] || 0) - (other[i] || 0);
      if (difference !== 0) return difference < 0;
    }
    return true;
  };

  function element(name, text, options = {}) {
    const made = Object.assign(document.createElement(name), options);
    if (text) made.textContent = text;
    return made;
  }

  // What stands between backticks in a sentence of the command line is code here.
  function sentence(name, text, options = {}) {
    const made = element(name, "", options);
    text.split(/`([^`]+)`/).forEach((part, at) => made.append(at % 2 ? element("code", part) : part));
    return made;
  }

  // Names with all of the typed words in them, for a click.
  function nearest(text) {
    const wanted = text.toLowerCase().split(/[^a-z0-9]+/).filter(Boolean);
    return known.names.filter((name) => wanted.every((word) => name.toLowerCase().includes(word))).slice(0, 12);
  }

  // The answers of a class come as a script: a page that is opened from disk may not fetch.
  function load(file, then) {
    if (loaded.has(file)) { then(loaded.get(file)); return; }
    const begun = waiting.has(file);
    waiting.set(file, then);
    if (begun) return;
    const script = document.createElement("script");
    script.src = `data/${file}.js`;
    script.onerror = () => { waiting.delete(file); script.remove(); say("The answers for this card could not be loaded. Try again."); };
    document.head.append(script);
  }

  // Every text travels once; a number stands for it.
  function unpacked(value, text) {
    if (typeof value === "number") return text(value);
    if (Array.isArray(value)) return value.map((each) => unpacked(each, text));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unpacked(each, text)]));
    }
    return value;
  }

  function answerFor(data, question) {
    let at = 0;
    if (question.driver) {
      const mine = numbers(question.driver);
      data.drivers.forEach((step, index) => { if (step !== "" && atMost(numbers(step), mine)) at = index; });
    }
    const word = /^[A-Za-z0-9][A-Za-z0-9_.+-]*$/.test(question.name) ? question.name : `"${question.name}"`;
    const fill = (number) => data.texts[number].replaceAll(`"${known.card}"`, word).replaceAll(known.card, question.name).replaceAll(known.driver, question.driver).replaceAll(known.chips, question.which);
    return unpacked(data.answers[data.cells[question.python][at]], fill);
  }

  function say(text) { byId("message").textContent = text; }

  function list(title, items) {
    if (!items || items.length === 0) return [];
    const ul = element("ul");
    ul.append(...items.map((item) => sentence("li", item)));
    return [element("h3", title), ul];
  }

  function table(rows, title) {
    const made = element("table");
    made.append(element("caption", title, { className: "hidden" }));
    for (const [head, ...cells] of rows) {
      const row = made.insertRow();
      row.append(element("th", head, { scope: "row" }), ...cells.map((cell) => sentence("td", cell)));
    }
    return made;
  }

  function command(text) {
    const box = element("div", "", { className: "command" });
    const pre = element("pre");
    pre.append(element("code", text));
    box.append(element("button", "Copy", { type: "button", className: "copy" }), pre);
    return box;
  }

  // pip, uv and conda as tabs: arrow keys move between them.
  function forms(route, name) {
    const tabs = element("div", "", { className: "tabs" });
    tabs.setAttribute("role", "tablist");
    tabs.setAttribute("aria-label", `Install with (${name})`);
    const panel = element("div", "", { id: `${name}-panel`, className: "panel" });
    panel.setAttribute("role", "tabpanel");
    const buttons = route.forms.map((form) => {
      const button = element("button", form.name, { type: "button", id: `${name}-${form.name}` });
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", panel.id);
      button.addEventListener("click", () => { chosenForm.set("form", form.name); choose(form.name); });
      return button;
    });
    function choose(wanted) {
      const at = Math.max(0, route.forms.findIndex((form) => form.name === wanted));
      const form = route.forms[at];
      buttons.forEach((button, index) => { button.setAttribute("aria-selected", String(index === at)); button.tabIndex = index === at ? 0 : -1; });
      panel.setAttribute("aria-labelledby", buttons[at].id);
      const text = form.text || `${route.route} has no form for ${form.name}: ${form.refusal}`;
      panel.replaceChildren(...(form.file ? [element("p", form.file, { className: "dim" })] : []), form.text ? command(text) : element("p", text));
    }
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
      next.focus();
      next.click();
    });
    tabs.append(...buttons);
    choose(chosenForm.get("form") || "pip");
    return [tabs, panel];
  }

  function routeCard(route, name, title) {
    const card = element("section", "", { className: "card", id: name });
    const state = route.works === false ? "no" : route.route === "source-build" ? "build" : route.loses ? "part" : "yes";
    const head = element("h3", title);
    head.append(" ", element("span", route.works === false ? "not possible" : route.route.replaceAll("-", " "), { className: `badge ${state}` }));
    card.append(head, sentence("p", route.summary, { className: "summary" }));
    if (route.forms) card.append(...forms(route, name));
    if (route.takes) card.append(element("p", `Takes ${route.takes}`, { className: "takes" }));
    card.append(...list("You lose", route.loses), ...list("Missing on your computer", route.missing));
    if (route.change) card.append(...list(route.works === false ? "What would help" : "First", [route.change]));
    card.append(...list("Not verified", route.unverified));
    if (route.settings) card.append(...list("Set while it runs", route.settings.map(([code, why]) => `${code}: ${why}`)));
    return card;
  }

  // Each heading with what follows it as one block, so that wide screens can have two side by side.
  function sections(parts) {
    const made = [];
    for (const part of parts) {
      if (part.tagName === "H3") made.push(element("section"));
      made[made.length - 1].append(part);
    }
    return made;
  }

  // What comes after tonight's command, with commands of its own.
  function next(steps) {
    if (steps.length === 0) return [];
    const items = element("ul");
    for (const [text, ...commands] of steps) {
      const item = sentence("li", text);
      item.append(...commands.map(command));
      items.append(item);
    }
    return [element("h3", "What comes next"), items];
  }

  function show(answer, question) {
    const best = answer.best, others = answer.alternatives || [];
    const works = best.works !== false;
    const several = question.count > 1 ? answer.several || [] : [];
    byId("headline").textContent = `${question.count > 1 ? `${question.count} x ` : ""}${question.name} on ${question.os === "windows" ? "Windows" : "Linux"}`;
    byId("notes").replaceChildren(...[...question.notes, ...several, ...(answer.notes || [])].map((note) => sentence("p", note)));
    const title = works ? "Run this" : "No PyTorch for this";
    byId("routes").replaceChildren(routeCard(best, "best", title), ...others.map(([wins, route], index) => routeCard(route, `other${index}`, `Or: ${wins}`)));
    byId("routes").className = others.length > 0 ? "two" : "";
    const more = next(answer.next || []);
    if (answer.chips) more.push(element("h3", "For each chip that was sold under this name"), table(answer.chips, "For each chip"));
    if (best.facts) more.push(element("h3", "What you get"), table(best.facts, "What you get"));
    more.push(...list("Why this one", best.why), ...list("Not supported on this GPU, whatever you install", answer.lacks));
    if (answer.advice) more.push(element("h3", `How to use this GPU (${answer.advice_from})`), table(answer.advice, "How to use this GPU"));
    more.push(...list("Reported from real cards", answer.reported));
    if (answer.others) more.push(element("h3", "Other routes that work"), table(answer.others, "Other routes that work"));
    byId("more").replaceChildren(...sections(more));
    const own = question.page ? [element("a", `Page of the ${question.name}`, { href: `gpu/${question.page}.html` })] : [];
    byId("own").replaceChildren(...own);
    byId("same").textContent = `rekindle plan --gpu "${question.typed}" --os ${question.os}`
      + (question.python ? ` --python ${question.python}` : "") + (question.driverTyped ? ` --driver ${question.driverTyped}` : "");
    byId("answer").hidden = false;
  }

  // The driver as it is looked up, and the note that the command line would make of it.
  function readDriver(typed, os) {
    const plain = typed.toLowerCase().replace(/^[rv]/, "");
    if (plain === "") return { driver: "", note: null };
    if (!/^\d{3}(\.\d+){0,3}$/.test(plain)) return null;
    const [newest, note] = known.branches[os][plain] || [numbers(plain).join("."), null];
    return { driver: newest, note: note && note.replace(plain, typed) };
  }

  function offer(found) {
    byId("nearest").replaceChildren(...found.map((name) => {
      const li = element("li");
      const button = element("button", name, { type: "button" });
      button.addEventListener("click", () => { byId("gpu").value = name; ask(); byId("gpu").focus(); });
      li.append(button);
      return li;
    }));
  }

  function ask() {
    const typed = byId("gpu").value.trim();
    const driverTyped = byId("driver").value.trim();
    const os = byId("os").value;
    byId("answer").hidden = true;
    offer([]);
    say("");
    byId("intro").hidden = typed !== "";
    if (!typed) return;
    if (known.served) { askServer({ typed, os, python: byId("python").value, driverTyped }); return; }
    const driver = readDriver(driverTyped, os);
    if (!driver) { say(`"${driverTyped}" is not a driver version: it looks like 560.94.`); return; }
    const found = readCard(typed);
    if (!found || found.number === undefined) {
      const near = found ? (found.several || []).map((number) => known.names[number]) : nearest(typed);
      say((found && found.refusal) || (near.length ? `No card is called "${typed}". Is it one of these?` : `No card called "${typed}" is known.`));
      offer(near);
      return;
    }
    const name = known.names[found.number];
    const kind = known.classes[found.number];
    const read = found.noted ? [known.say.read.replace("{typed}", found.typed || typed).replace("{name}", name)] : [];
    const own = known.quiet.has(kind) ? [] : [...read, ...(known.notes[found.number] || [])];
    const first = known.listed[found.number];
    const older = first && os === "linux" && driver.driver && !atMost(numbers(first), numbers(driver.driver));
    const doubt = older ? known.say.unlisted.replace("{name}", name).replace("{first}", first).replace("{driver}", driver.driver) : null;
    const question = {
      typed, name, which: known.which[found.number] || "", count: found.count || 1, os, python: byId("python").value, driver: driver.driver, driverTyped,
      notes: known.quiet.has(kind) ? own : [...own, driver.note, doubt].filter(Boolean),
      page: known.pages.has(found.number) ? name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") : "",
    };
    keep(question);
    load(`${kind}-${os}`, (data) => show(answerFor(data, question), question));
  }

  // The address holds the question, once the typing has stopped: browsers take their time to change it.
  let keeping = 0;
  function keep(question) {
    const link = new URLSearchParams({ gpu: question.typed, os: question.os });
    if (question.python) link.set("python", question.python);
    if (question.driverTyped) link.set("driver", question.driverTyped);
    clearTimeout(keeping);
    keeping = setTimeout(() => history.replaceState(null, "", `#${link}`), 150);
  }

  // `rekindle serve`: the resolver itself is behind the page. It is asked once the typing has stopped, and a question
  // that another one overtook is given up.
  let pause = 0;
  let asked = new AbortController();
  async function askServer(question) {
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    const query = new URLSearchParams({ gpu: question.typed, os: question.os, python: question.python, driver: question.driverTyped });
    clearTimeout(pause);
    await new Promise((stopped) => { pause = setTimeout(stopped, 150); });
    let found;
    while (!found && !signal.aborted) {
      try { found = await (await fetch(`/answer?${query}`, { signal })).json(); } catch {
        if (!signal.aborted) say("The server does not answer. It is asked again.");
        await new Promise((rested) => { setTimeout(rested, 1000); });
      }
    }
    if (signal.aborted) return;
    byId("falls").hidden = !found.falls;
    if (!found.shown) { say(found.refusal); offer(found.near || []); return; }
    keep(question);
    show(found.shown, { ...question, name: found.name, page: found.page, notes: [] });
  }

  // A link brings its question with it; what it leaves out stays as it is.
  function follow() {
    const link = new URLSearchParams(location.hash.slice(1));
    for (const id of ["gpu", "os", "python", "driver"]) if (link.has(id)) byId(id).value = link.get(id);
  }

  function begin() {
    byId("os").value = /win/i.test(navigator.platform) ? "windows" : "linux";
    if (known.served) for (const id of ["gpu", "os", "python", "driver"]) byId(id).value = known[id];
    follow();
    byId("gpus").replaceChildren(...known.names.map((name) => element("option", "", { value: name })));
    byId("version").textContent = known.version;
    byId("date").textContent = known.date;
    for (const id of ["gpu", "driver"]) byId(id).addEventListener("input", ask);
    for (const id of ["os", "python"]) byId(id).addEventListener("change", ask);
    for (const button of document.querySelectorAll("button[data-card]")) {
      button.addEventListener("click", () => { byId("gpu").value = button.dataset.card; ask(); });
    }
    window.addEventListener("hashchange", () => { follow(); ask(); });
    ask();
  }

  return {
    cards(data) {
      known = data;
      for (const name of ["shorts", "quiet", "pages"]) known[name] = new Set(known[name]);
      readCard = readName(known);
      begin();
    },
    served(data) { known = { ...data, served: true }; begin(); },
    take(file, data) { loaded.set(file, data); const then = waiting.get(file); waiting.delete(file); if (then) then(data); },
  };
})();
