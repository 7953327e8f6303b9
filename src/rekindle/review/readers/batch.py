"""Batch files: what cmd would do with them, statement by statement.

cmd fills `%X%` in before it runs a line, and before it runs a whole block in parentheses; that is kept, because it is
the fault that many scripts have. `call :label` is followed into the subroutine, `goto` to its label.
"""

from __future__ import annotations

import re

from rekindle.core.regex import re2
from rekindle.review.readers.batch_grammar import BatchNode, BatchParser
from rekindle.review.readers.conditions import holds
from rekindle.review.readers.recorder import Recorder
from rekindle.review.trace import Value, Word, program_of

_VARIABLE = re.compile(r"%([A-Za-z_][\w.() -]*?)(:[^%\n]*)?%|!([A-Za-z_]\w*)(:[^!\n]*)?!")
_SET = re.compile(r"(?is)\s*set\s+(/[ap]\s+)?(.*)\Z")
_HANDED = re2.compile(r"(?s)\(\s*(?:'(.+)'|`(.+)`)\s*\)")
_DEEPEST, _MOST_PIPED = 6, 20


def read_batch(recorder: Recorder, text: str, first: int = 1) -> None:
    _BatchReader(recorder).read(text, first)


_BARE = re.compile(r"%[^%]+%\Z|![^!]+!\Z")


class _BatchReader:
    def __init__(self, recorder: Recorder) -> None:
        self.trace = recorder.trace
        self.recorder = recorder
        self.delayed = False
        self.frozen: int | None = None
        self.depth = 0
        self.labels: dict[str, int] = {}
        self.nodes: list[BatchNode] = []
        self.seen: set[int] = set()
        self.ended = False
        self.inside = 0  # how many blocks deep
        self.waiting: list[str] = []  # labels that a conditional goto leads to
        self.chosen = False  # one of several such labels was

    def read(self, text: str, first: int) -> None:
        parser = BatchParser(text, first)
        self.nodes = parser.parse()
        for index, node in enumerate(self.nodes):
            if node.kind == "label":
                self.labels.setdefault(_label(node.raw), index)
        self._follow(0)
        self.chosen = len(self.waiting) > 1
        while self.waiting and not self.trace.full:
            self._follow(self.labels.get(self.waiting.pop(0), len(self.nodes)))
        self.chosen = False
        data = self._beyond()
        self._complaints(parser, data)
        # What no path leads to is read as well, but the rules about order leave it alone.
        self.recorder.reached = False
        for index, node in enumerate(self.nodes):
            if index not in self.seen and node.line < data and not self.trace.full:
                self._node(self.nodes, index)

    def _beyond(self) -> int:
        """The line from which on no command is ever reached: a text that the script carries with it."""
        last = max(self.seen, default=-1)
        rest = self.nodes[last + 1 :]
        if not rest or any(node.kind == "label" and _label(node.raw) for node in rest):
            return 1 << 30
        return rest[0].line

    def _complaints(self, parser: BatchParser, data: int) -> None:
        for item in parser.complaints:
            if item.line >= data:
                continue
            if item.kind == "unread":
                self.trace.unread(item.line, item.text, item.text)
            elif item.kind == "continuation":
                text, sign = item.text.rstrip()[:-1], item.text.rstrip()[-1]
                self.trace.slip("continuation", item.line, text + "^", sign=sign, right="^", shell="cmd")
            elif item.kind == "continuation-space":
                self.trace.slip("continuation-space", item.line, item.text.rstrip(), sign="^")
            elif not re.match(r"(?i)\s*@?(?:echo|title|color|prompt)\b", item.text):
                self.trace.slip("quote-open", item.line, _closed(item.text))

    def _follow(self, index: int) -> None:
        """From a statement to the end of the script or of the subroutine."""
        while index < len(self.nodes) and not self.trace.full:
            if index in self.seen:
                return
            self.seen.add(index)
            self.ended = False
            jump = self._node(self.nodes, index)
            if self.ended:
                return
            index = self.labels.get(jump, index + 1) if jump is not None else index + 1

    def _subroutine(self, label: str) -> None:
        if label not in self.labels or self.depth >= _DEEPEST:
            return
        self.depth += 1
        frozen, inside, self.frozen, self.inside = self.frozen, self.inside, None, 0
        index = self.labels[label]
        while index < len(self.nodes) and not self.trace.full:
            self.seen.add(index)
            self.ended = False
            jump = self._node(self.nodes, index)
            if self.ended or (jump is not None and self.labels.get(jump, 0) <= index):
                break
            index = self.labels.get(jump, index + 1) if jump is not None else index + 1
        self.ended = False
        self.frozen, self.inside = frozen, inside
        self.depth -= 1

    def _given(self, values: dict[str, Word]) -> None:
        """`%1` of a subroutine, `%%p` of a loop."""
        for name, word in values.items():
            self.recorder.scope.put(name, Value(word.text, word.known, word.line, False, self.trace.tick()))

    def _turns(self, node: BatchNode, checked: bool) -> str | None:
        """Each word of a list that a loop goes through; what is found in files or printed is not known."""
        over = re.search(r"(?i)\bfor\s+(%%\w)\s+in\s*\(([^'`*]*)\)", node.condition)
        words = [Word(each, each, node.line) for each in self._expand(over[2], node.line)[0].split()] if over else []
        for word in words[: _MOST_PIPED - 1]:
            self._given({over[1] if over else "": word})
            if word is not words[-1]:
                self._body(node.body, checked)
        return self._body(node.body, checked)

    def _node(self, nodes: list[BatchNode], index: int, *, checked: bool = False) -> str | None:
        """Runs one statement. A label when the script goes on there."""
        node = nodes[index]
        if self.frozen is None:
            self.frozen = self.trace.order
        jump = None
        # What stands behind `||` runs only after a failure.
        failed = (index > 0 and nodes[index - 1].after == "||") or (self.chosen and "install" in node.raw)
        self.recorder.conditional += failed
        if node.kind == "command":
            for _ in self.recorder.worlds(node.raw):
                jump = self._command(nodes, index, checked)
        elif node.kind == "block":
            jump = self._body(node.body, checked or node.after in ("||", "&&") or _looks(nodes, index))
        elif node.kind in ("if", "for"):
            jumps: list[str | None] = []
            self.recorder.branches(
                (
                    (lambda: self._condition(node), lambda: jumps.append(self._turns(node, checked))),
                    (lambda: True, lambda: jumps.append(self._body(node.otherwise, checked))),
                )
            )
            jump = jumps[-1] if jumps else None
        if not self.inside and not node.after:
            self.frozen = None
        self.recorder.conditional -= failed
        if jump is not None and (self.recorder.conditional or failed):
            self.waiting.append(jump)
            return None
        return jump

    def _body(self, nodes: list[BatchNode], checked: bool) -> str | None:
        self.inside += 1
        jump = None
        for index in range(len(nodes)):
            jump = self._node(nodes, index, checked=checked)
            if jump is not None or self.ended:
                break
        self.inside -= 1
        return jump

    def _condition(self, node: BatchNode) -> bool | None:
        for match in _VARIABLE.finditer(node.condition):
            self.trace.asked.add((match[1] or match[3]).upper())
        for name in re.findall(r"(?i)\bdefined\s+(\w+)", node.condition):
            self.trace.asked.add(name.upper())
        if node.kind == "for" and (inner := _HANDED.search(node.condition)):
            self._nested(inner[1] or inner[2], node.line)
        if re.search(r"(?i)%errorlevel%", node.condition) and self._inside(node):
            self.trace.slip("block-errorlevel", node.line)
        if node.kind == "for":
            return None
        return holds(re.sub(r"(?i)\Aif\b", "", node.condition), lambda name: self.recorder.sure(name, self.frozen))

    def _inside(self, node: BatchNode) -> bool:
        """In a block, after a command of the same block."""
        return self.frozen is not None and any(
            item.order > self.frozen and item.line < node.line for item in self.trace.invocations[-3:]
        )

    def _nested(self, text: str, line: int) -> None:
        """A command in a cmd of its own: what it sets is gone with it."""
        reader = _BatchReader(self.recorder.inner("child"))
        reader.recorder.child = True
        if self.depth < _DEEPEST:
            reader.depth = self.depth + 1
            reader.read(text.replace("^", ""), line)

    def _command(self, nodes: list[BatchNode], index: int, checked: bool) -> str | None:
        node = nodes[index]
        if not node.tokens:
            return None
        name = node.tokens[0].text.lower().lstrip("@")
        if name == "set":
            self._set(node)
            return None
        if name in ("setlocal", "endlocal"):
            self._local(node, name)
            return None
        if name == "goto":
            if len(node.tokens) > 1 and node.tokens[1].text.lower() not in (":eof", "eof"):
                return _label(node.tokens[1].text)
            self.ended = len(node.tokens) > 1 and not self.recorder.conditional
            return None
        words = [word for token in node.tokens for word in self._words(token)]
        called = name == "call"
        if called:
            words = words[1:]
        if called and words and words[0].text.startswith(":"):
            self._given({f"%{number}": word for number, word in enumerate(words[1:10], 1)})
            self._subroutine(_label(words[0].text))
            return None
        if not words:
            return None
        if not _is_folder_change(self, words, node):
            self._start(nodes, index, words, called, checked)
        if name == "exit" and not self.recorder.conditional:
            self.ended = True
        return None

    def _start(self, nodes: list[BatchNode], index: int, words: list[Word], called: bool, checked: bool) -> None:
        node = nodes[index]
        piped: list[str] = []
        step = index
        while nodes[step].after == "|" and step + 1 < min(len(nodes), index + _MOST_PIPED):
            step += 1
            if nodes[step].tokens:
                piped.append(program_of(nodes[step].tokens[0].text))
        item = self.recorder.run(
            words,
            node.line,
            node.last,
            node.raw,
            called=called,
            checked=checked or nodes[step].after in ("||", "&&") or _looks(nodes, step),
            piped=tuple(piped),
            redirects=tuple(node.targets),
            after=node.after,
        )
        if called and re.search(r"(?i)\.(?:bat|cmd)$", words[0].text.strip('"')):
            self._other(words[0], node.line)
        if item and item.program == "cmd" and len(item.words) > 2 and re.fullmatch(r"(?i)/[ck]", item.words[1].text):
            self._nested(" ".join(word.text for word in item.words[2:]), node.line)

    def _other(self, word: Word, line: int) -> None:
        """`call setenv.bat`: what it sets stays, unless it keeps it to itself with setlocal."""
        with self.recorder.other(word, line) as found:
            if found is None or self.depth >= _DEEPEST:
                return
            own = re.search(r"(?im)^[ \t]*@?setlocal\b", found.text)
            reader = _BatchReader(self.recorder.inner("called" if own else ""))
            reader.depth = self.depth + 1
            reader.read(found.text, 1)

    def _local(self, node: BatchNode, name: str) -> None:
        text = node.raw.lower()
        if "enabledelayedexpansion" in text:
            self.delayed = True
            self.trace.options["delayed"] = node.line
        if "disabledelayedexpansion" in text or name == "endlocal":
            self.delayed = False

    def _set(self, node: BatchNode) -> None:
        match = _SET.match(node.raw.lstrip("@ \t"))
        if match is None or "=" not in match[2]:
            return
        switch, rest = (match[1] or "").strip().lower(), match[2]
        if switch == "/p":
            self.recorder.set(rest.partition("=")[0].strip().strip('"'), "", node.line, known=False, text=node.raw)
            return
        whole = rest.lstrip().startswith('"')
        if whole:
            inner = rest.strip()[1:]
            inner = inner[: inner.rindex('"')] if '"' in inner else inner
        else:
            inner = rest
        name, _, value = inner.partition("=")
        self._spaces(node, name, value, whole=whole)
        quoted = not whole and re.fullmatch(r'\s*"[^"]*"\s*', value)
        filled, known = self._expand(value.strip(), node.line)
        if quoted:
            filled = filled.strip().strip('"')
        if switch == "/a":
            known = known and filled.isdigit()
        appended = f"%{name.strip().upper()}%" in value.upper()
        raw, text = value.strip() if quoted else value, node.raw.strip()
        self.recorder.set(name.strip(), filled, node.line, known=known, raw=raw, text=text, appended=appended)

    def _spaces(self, node: BatchNode, name: str, value: str, *, whole: bool) -> None:
        before, after = name != name.rstrip(), value[:1] in (" ", "\t") and bool(value.strip())
        if before or (after and not re.search(r"(?i)flags|args|options|CL$", name)):
            right = f'set "{name.strip()}={value.strip().strip(chr(34))}"'
            self.trace.slip("set-with-spaces", node.line, right, name=name.strip(), shell="cmd")
        elif not whole and node.after and value != value.rstrip() and value.strip():
            right = f'set "{name.strip()}={value.strip()}"'
            self.trace.slip("set-trailing-space", node.line, name=name.strip(), value=value.strip(), right=right)

    def _words(self, token: Word) -> list[Word]:
        text, known = self._expand(token.text, token.line)
        return Word(text, token.raw, token.line, token.quoted, known).apart(bare=bool(_BARE.match(token.raw)))

    def _expand(self, text: str, line: int) -> tuple[str, bool]:
        given = re.finditer(r"(%%?)~?(\w)", text)
        held = {each[0]: found for each in given if (found := self.recorder.lookup(each[1] + each[2])) is not None}
        for name, found in held.items():
            text = text.replace(name, found.text)
        known = not re.search(r"%[*\d~]|%%", text) and all(each.known for each in held.values())
        budget = len(text)

        def value(match: re.Match[str]) -> str:
            nonlocal known, budget
            name, change = (match[1], match[2]) if match[1] else (match[3], match[4])
            if match[3] and not self.delayed:
                return match[0]
            found = self.recorder.lookup(name, None if match[3] else self.frozen)
            newer = None if match[3] or self.frozen is None else self.recorder.lookup(name)
            if newer is not None and newer.order > (self.frozen or 0) and newer is not found:
                same_line = newer.line == line
                self.trace.slip("block-expansion-line" if same_line else "block-expansion", line, name=name)
            if found is None:
                known = False
                self.recorder.missed(name, line)
                return match[0]
            budget += len(found.text)
            if budget > 1 << 20:
                known = False
                return ""
            known = known and found.known
            return _changed(found.text, change)

        return _VARIABLE.sub(value, text), known


def _changed(text: str, change: str | None) -> str:
    """`%X:a=b%` and `%X:~0,3%`."""
    if not change:
        return text
    cut = re.fullmatch(r":~(-?\d{1,9})(?:,(-?\d{1,9}))?", change)
    if cut:
        start = int(cut[1])
        rest = text[start:] if start >= 0 else text[max(0, len(text) + start) :]
        return rest if cut[2] is None else rest[: int(cut[2])]
    old, sign, new = change[1:].partition("=")
    return re.sub(re.escape(old), lambda _: new, text, flags=re.IGNORECASE) if sign and old else text


def _label(text: str) -> str:
    return re.split(r"[\s:+&|<>(]", text.lstrip(": \t"), maxsplit=1)[0].lower()


def _looks(nodes: list[BatchNode], index: int) -> bool:
    """The statement behind looks at how this one ended."""
    for node in nodes[index + 1 : index + 4]:
        if node.kind == "comment":
            continue
        if node.kind == "command" and node.tokens and node.tokens[0].text.lower() in ("echo", "echo.", "popd"):
            continue
        return "errorlevel" in (node.condition + node.raw).lower()
    return False


def _is_folder_change(reader: _BatchReader, words: list[Word], node: BatchNode) -> bool:
    name = words[0].text.lower()
    recorder = reader.recorder
    change = re.match(r"(?:cd|chdir)(?:$|[\\/.])", name) is not None
    if not change and name not in ("pushd", "popd"):
        return False
    recorder.run(words, node.line, node.last, node.raw, after=node.after, checked=node.after == "||")
    rest = " ".join(word.text for word in words[1:] if word.text.lower() != "/d")
    target = rest or (re.sub(r"(?i)\A(?:chdir|cd)", "", words[0].text) if change else "")
    recorder.moves("cd" if change else name, [target] if target.strip() else [])
    return True


def _closed(text: str) -> str:
    """The line with its quote closed."""
    body = text.rstrip()
    sign = "^" if body.endswith("^") else ""
    body = body[: -len(sign)].rstrip() if sign else body
    if re.search(r"\"[^\"]*'$", body):
        return body[:-1] + '"'
    return body + '"' + (f" {sign}" if sign else "")
