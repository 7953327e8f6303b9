// Reads a card's name as people type it. The expressions, the lists of words and the table of spellings are those of
// Rekindle's own reader, written into data/cards.js when the site was made; which card a spelling means is not decided here.
"use strict";
const readName = (() => {
  const tidy = (words) => words.join(" ");

  function reader(known) {
    const patterns = {};
    for (const [name, text] of Object.entries(known.patterns)) patterns[name] = new RegExp(text, "gi");
    const whole = (name) => new RegExp(`^(?:${known.patterns[name]})$`, "i");
    const from = (name) => new RegExp(`^(?:${known.patterns[name]})`, "i");
    const [noise, family, series, boards, mobile] = ["noise", "family", "series", "boards", "mobile"]
      .map((name) => new Set(known.words[name]));
    const memory = from("memory");

    function tokens(text) {
      const lowered = text.toLowerCase().replace(/\(tm\)|\(r\)|®|™/g, " ");
      const split = lowered.replace(patterns.after, " $1 ").replace(patterns.before, "$1 ");
      return split.split(patterns.break).filter((word) => word && !noise.has(word));
    }

    // Ever plainer readings of what was typed, each without more of what shops and systems put around a name.
    function plainer(text) {
      const inside = new RegExp(known.patterns.lspci, "i").exec(text);
      const bare = (inside ? inside[1] : text).replace(patterns.revision, " ");
      const found = [];
      for (const reading of [bare, bare.replace(patterns.slice, "")]) {
        const every = tokens(reading.toLowerCase().replace(patterns.super, "$1 super"));
        const named = every.filter((word) => !boards.has(word));
        const small = named.filter((word) => !memory.test(word) && (!/^\d+$/.test(word) || word.length > 2));
        const unmade = every.filter((word) => !memory.test(word));
        const laptop = small.map((word) => (word === "mobile" || word === "notebook" ? "laptop" : word));
        found.push(every, unmade, named, small, laptop, small.filter((word) => !mobile.has(word)));
      }
      return found.filter((words) => words.length);
    }

    function spelled(words) {
      const found = known.keys[tidy(words)];
      if (found === undefined) return null;
      return typeof found === "string" ? { refusal: found } : { number: Math.abs(found) - 1, noted: found < 0 };
    }

    // The same where a family's name or a shop's words stand around it.
    function among(words) {
      const other = known.among[tidy(words)];
      return other === undefined ? spelled(words) : { number: other };
    }

    const without = (words, some) => words.filter((word) => !some.has(word));
    const saysModel = (words) => words.some((word) => /\d/.test(word) || word === "titan");

    // The longest known name among what was typed.
    function inside(words) {
      const said = words.filter((word) => known.generations[word]);
      const meant = (number) => !said.length || said.some((word) => known.generations[word].includes(known.classes[number]));
      for (let length = words.length - 1; length > 0; length -= 1) {
        const found = new Map();
        for (let at = 0; at + length <= words.length; at += 1) {
          const part = words.slice(at, at + length);
          const count = at ? /^(\d{1,2})x$/.exec(words[at - 1]) : null;
          const alone = length === 1 && count && /[a-z].*\d/.test(part[0]);
          const hit = (alone || known.shorts.has(tidy(part))) && among(part);
          if (hit && hit.number !== undefined && meant(hit.number)) found.set(hit.number, count);
        }
        if (found.size === 1) {
          const [[number, count]] = [...found];
          return count ? { number, noted: true, count: Number(count[1]) } : { number, noted: true };
        }
        if (found.size > 1) return { refusal: "", several: [...found.keys()] };
      }
      return null;
    }

    function byNumber(text) {
      for (const [pattern, device, maker, board] of known.pci) {
        const match = new RegExp(pattern, "i").exec(text);
        if (!match) continue;
        const [id, subsystem] = [match[device], match[maker] && `${match[maker]}:${match[board]}`].map((each) => each && each.toLowerCase());
        const number = known.numbers[`${id}:${subsystem}`] ?? known.numbers[id];
        return number === undefined ? { refusal: known.say.pci.replace("{}", id) } : { number, noted: false };
      }
      const capability = from("capability").exec(text);
      if (!capability) return null;
      const digits = (capability[1] || capability[2]).replace(".", "");
      const number = known.numbers[`sm${digits}`];
      return number === undefined ? { refusal: known.say.capability.replace("{}", text) } : { number, noted: false };
    }

    // { number, noted }, { refusal }, or null: no such card is known. Of `8x A100` also the count, and the name alone.
    return function read(typed) {
      const text = typed.trim();
      if (text === "" || text.length > 200) return null;
      const exact = known.names.findIndex((name, number) => name === text && known.pages.has(number));
      if (exact >= 0) return { number: exact, noted: false };
      const numbered = byNumber(text);
      if (numbered) return numbered;
      if (text.split(patterns.list).filter((piece) => piece && piece.trim()).length > 1) return { refusal: known.say.several };
      const words = tokens(text);
      const direct = spelled(words);
      if (direct) return direct;
      const short = without(words, family);
      const called = short.length && short.length < words.length ? among(short) : null;
      if (called && called.number !== undefined) return { number: called.number, noted: false };
      const counted = whole("count").exec(text);
      if (counted) {
        const name = (counted[3] || counted[4]).trim();
        const found = read(name);
        return found && found.number !== undefined ? { ...found, typed: name, count: Math.max(1, Number(counted[1] || counted[2] || counted[5])) } : found;
      }
      const lowered = text.toLowerCase().split(patterns.break).join(" ");
      const ours = new RegExp(known.patterns.ours).test(lowered);
      const other = known.vendors.find(([pattern, , own]) => (own || !ours) && new RegExp(pattern).test(lowered));
      if (other) return { refusal: `"${text}" ${other[1]}` };
      for (const reading of plainer(text)) {
        for (const left of [reading, without(reading, family), without(reading, series)]) {
          if (!left.length || (left.length < reading.length && !saysModel(left))) continue;
          const listed = spelled(left);
          const found = listed && listed.noted === false ? listed : among(left);
          if (found) return found.refusal !== undefined ? found : { number: found.number, noted: true };
        }
      }
      return (/\s/.test(text) ? null : spelled([words.join("")])) || inside(words);
    };
  }
  return reader;
})();
if (typeof module !== "undefined") module.exports = readName;
