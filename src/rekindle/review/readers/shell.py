"""Shell scripts (sh, bash): walked in order on the tree of the bash grammar; functions are followed where called."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from rekindle.review.document import Dialect
from rekindle.review.readers.conditions import holds
from rekindle.review.readers.grammar import TreeReader, parsed, text_of
from rekindle.review.readers.handed import contained, handed_on, printed, trimmed
from rekindle.review.readers.kinds import read_as
from rekindle.review.readers.recorder import Recorder
from rekindle.review.trace import LIST, Assignment, Redirect, Word, program_of

if TYPE_CHECKING:
    from tree_sitter import Node

_CALLS = 200
_TURNS = 8  # of a loop
_BRANCHES = ("elif_clause", "else_clause", "case_item")
_QUIET = frozenset({"comment", "heredoc_body", "heredoc_end", "\n", ";", "&", ";;"})


def read_shell(recorder: Recorder, text: str, first: int = 1) -> None:
    begin = re.match(r"#!.*\b(?:ba|z|da|k)?sh\b(?P<options>.*)", text)
    if begin and re.search(r"(?:^|\s)-\w*e", begin["options"]):
        recorder.stops = True
    reader = _ShellReader(recorder, text, first)
    root = parsed("bash", text)
    reader.statements(root)
    reader.never_called()
    reader.errors(root)


def _conditions(node: Node) -> list[Node]:
    """What an `if`, `elif` or `while` asks; the grammar names it in the first and the last only."""
    named = [child for child in node.children_by_field_name("condition") if child.is_named]
    ends = next((at for at, child in enumerate(node.children) if child.type == "then"), 0)
    return named or [child for child in node.children[:ends] if child.is_named]


class _ShellReader(TreeReader):
    language = "shell"

    def __init__(self, recorder: Recorder, text: str, first: int) -> None:
        super().__init__(recorder, text, first)
        self.redirected: dict[int, tuple[Sequence[Redirect], Sequence[Node]]] = {}

    def enter(self, function: Node, *, checked: bool = False) -> None:
        body = function.child_by_field_name("body")
        if body is not None:
            self.statement(body, checked=checked)

    def statements(self, node: Node) -> None:
        # A child that is asked for its neighbour counts them all from the first on.
        children = node.children
        final = max((index for index, child in enumerate(children) if child.is_named), default=0)
        for index, (child, following) in enumerate(zip_longest(children, children[1:])):
            if self.trace.full:
                return
            if not child.is_named:
                continue
            sign = following.type if following is not None and following.type in ("&", ";") else ""
            last = final <= index + 1
            self.statement(child, after="" if sign == ";" and last else sign)
            if node.type == "program" and child.type == "command" and self._name(child) == "exit":
                self.recorder.reached = False

    def statement(self, node: Node, *, checked: bool = False, piped: tuple[str, ...] = (), after: str = "") -> None:
        if not self.too_deep(node):
            self.depth += 1
            self._statement(node, checked, piped, after)
            self.depth -= 1

    def _statement(self, node: Node, checked: bool, piped: tuple[str, ...], after: str) -> None:
        kind = node.type
        if kind in _QUIET:
            return
        if kind == "command":
            for _ in self.recorder.worlds(text_of(node)):
                self._command(node, checked, piped, after)
        elif kind == "redirected_statement":
            self._redirected(node, checked, piped, after)
        elif kind in ("variable_assignment", "variable_assignments"):
            for item in [node] if kind == "variable_assignment" else node.named_children:
                self._assign(item, "shell")
        elif kind == "declaration_command":
            self._declare(node)
        elif kind == "pipeline":
            self._pipeline(node, checked, after)
        elif kind == "list":
            self._list(node, checked, after)
        elif kind == "function_definition":
            name = text_of(node.child_by_field_name("name"))
            self.functions[name] = node
        elif kind == "subshell":
            self._subshell(node, checked)
        elif kind == "negated_command":
            for child in node.named_children:
                self.statement(child, checked=True)
        elif kind == "unset_command":
            for child in node.named_children:
                self.recorder.set(text_of(child), "", self.line(node), how="shell", text=text_of(node))
        elif kind == "ERROR":
            self.statements(node)
        else:
            self._compound(node, checked)

    def _compound(self, node: Node, checked: bool) -> None:
        """for, while, { … }: the condition is looked at, the body of a loop is conditional."""
        kind = node.type
        if kind in ("if_statement", "case_statement"):
            self._branches(node, checked)
            return
        if kind == "for_statement":
            variable = node.child_by_field_name("variable")
            values = [word for child in node.children_by_field_name("value") for word in self.words(child)]
            turns = values if values and len(values) <= _TURNS and all(each.known for each in values) else [None]
            for each in turns:
                value = each.text if each else ""
                self.recorder.set(text_of(variable), value, self.line(node), known=each is not None, how="shell")
                if each is not turns[-1] and (body := node.child_by_field_name("body")) is not None:
                    self.recorder.conditional += 1
                    self.statement(body, checked=checked)
                    self.recorder.conditional -= 1
        loop = kind in ("for_statement", "while_statement", "c_style_for_statement")
        self.recorder.conditional += loop
        self._asked(node)
        self._body(node, checked)
        self.recorder.conditional -= loop

    def _branches(self, node: Node, checked: bool) -> None:
        """`if` and `case`: the branch that is taken where that is known, else each as one that may be."""
        parts = [node] if node.type == "if_statement" else []
        parts += [child for child in node.named_children if child.type in _BRANCHES]
        self.recorder.branches(
            (partial(self._matches, node, part), partial(self._body, part, checked)) for part in parts
        )

    def _asked(self, node: Node) -> bool | None:
        """Whether the condition of a branch holds; an `else` has none."""
        conditions = _conditions(node)
        for child in conditions:
            self.trace.asked.update(re.findall(r"\$\{?([A-Za-z_]\w*)", text_of(child)))
            if child.type != "test_command":
                self.statement(child, checked=True)
        return holds(text_of(conditions[-1]), self.recorder.sure) if conditions else node.type == "else_clause"

    def _matches(self, node: Node, item: Node) -> bool | None:
        if item.type != "case_item":
            return self._asked(item)
        value = text_of(node.child_by_field_name("value"))
        patterns = [text_of(child) for child in item.children_by_field_name("value")]
        answers = [each == "*" or holds(f"{value} == {each}", self.recorder.sure) for each in patterns]
        return True if True in answers else None if None in answers else False

    def _body(self, node: Node, checked: bool) -> None:
        given = {child.id for child in (*_conditions(node), *node.children_by_field_name("value"))}
        for child in node.named_children:
            plain = child.type in ("word", "string", "variable_name", "test_command", "concatenation", "raw_string")
            if not (plain or child.id in given or child.type in _BRANCHES or self.trace.full):
                self.statement(child, checked=checked)

    def _subshell(self, node: Node, checked: bool) -> None:
        outer, folder = self.recorder.scope, self.recorder.directory
        self.recorder.scope = self.trace.open(outer, "subshell")
        for child in node.named_children:
            self.statement(child, checked=checked)
        self.recorder.scope, self.recorder.directory = outer, folder

    def _list(self, node: Node, checked: bool, outer: str) -> None:
        """`a && b || c`: whoever has an operator behind it is looked at."""
        children = list(node.children)
        runs: bool | None = True
        for index, child in enumerate(children):
            if child.is_named and child.type not in _QUIET:
                sign = children[index + 1].type if index + 1 < len(children) else outer
                # The right side of `||` runs only after a failure, that of a test only where it holds.
                if runs is not False:
                    self.recorder.conditional += runs is None
                    self.statement(child, checked=checked or sign == "||", after=sign)
                    self.recorder.conditional -= runs is None
                answer = holds(text_of(child), self.recorder.sure)
                test = child.type == "test_command" or sign == "||"
                runs = answer is (sign != "||") if answer is not None else None if test else True

    def _pipeline(self, node: Node, checked: bool, after: str) -> None:
        parts = [child for child in node.named_children if child.type not in _QUIET]
        names = [self._name(part) for part in parts]
        for index, part in enumerate(parts):
            self.statement(part, checked=checked, piped=tuple(names[index + 1 :]), after=after)

    def _name(self, node: Node) -> str:
        while node.type == "redirected_statement" and node.named_children:
            node = node.named_children[0]
        name = node.child_by_field_name("name")
        return program_of(text_of(name)) if name is not None else ""

    def _redirected(self, node: Node, checked: bool, piped: tuple[str, ...], after: str) -> None:
        redirects: list[Redirect] = []
        behind: list[Node] = []
        body = node.child_by_field_name("body")
        text, begins = None, 0
        for child in node.children_by_field_name("redirect"):
            if child.type == "file_redirect":
                redirects.append(self._redirect(child))
                # The grammar takes all that follows for targets; the shell takes one, and the rest are arguments.
                behind += child.children_by_field_name("destination")[1:]
            elif child.type == "heredoc_redirect":
                # `cmd <<EOF | other`: what follows on the first line is still a command.
                for inner in child.named_children:
                    if inner.type in ("pipeline", "command", "list"):
                        self.statement(inner, checked=checked)
                    elif inner.type == "heredoc_body":
                        text, begins = text_of(inner), self.line(inner) - 1
                    elif inner.type == "file_redirect":
                        redirects.append(self._redirect(inner))
        if text is not None and body is not None and self._name(body) in ("cat", "tee"):
            self.recorder.wrote(text, redirects, [text_of(each) for each in body.named_children[1:]], begins)
        if (
            text is not None
            and body is not None
            and self._name(body) == "python"
            and self.trace.dialect is Dialect.SHELL
        ):
            read_as(self.trace, Dialect.PYTHON, "\n" * begins + text)
        if body is not None:
            # The grammar gives `a && b > c` the redirection as a whole; the shell gives it to `b`.
            last = body
            while last.type in ("list", "pipeline") and last.named_children:
                last = last.named_children[-1]
            self.redirected[last.id] = redirects, behind
            self.statement(body, checked=checked, piped=piped, after=after)

    def _declare(self, node: Node) -> None:
        kind = text_of(node.children[0]) if node.children else ""
        how = "environment" if kind == "export" or " -x" in text_of(node)[:14] else "shell"
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, how)
            elif child.type in ("variable_name", "word") and how == "environment":
                name = text_of(child)
                found = self.recorder.lookup(name)
                if found is not None and re.fullmatch(r"[A-Za-z_]\w*", name):
                    self.recorder.set(
                        name, found.text, found.line, known=found.known, how="environment", text=text_of(node)
                    )

    def _assign(self, node: Node, how: str) -> Assignment | None:
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = text_of(name_node)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return None
        word = self.word(value_node) if value_node is not None else Word("", "", self.line(node))
        already = self.recorder.lookup(name)
        if how == "shell" and already is not None and already.exported:
            how = "environment"
        appended = any(child.type == "+=" for child in node.children)
        between = LIST if value_node is not None and value_node.type == "array" else ""
        text = (already.text + between if already and appended else "") + word.text
        return self.recorder.set(
            name,
            text,
            self.line(node),
            known=word.known,
            how=how,
            raw=word.raw,
            text=text_of(node),
            appended=appended or f"${name}" in word.raw or f"${{{name}" in word.raw,
        )

    def _command(self, node: Node, checked: bool, piped: tuple[str, ...], after: str) -> None:
        around, behind = self.redirected.get(node.id, ((), ()))
        redirects = list(around)
        prefix: list[Assignment] = []
        words: list[Word] = []
        ended = -1
        for child in node.children:
            if child.type == "variable_assignment":
                prefix.append(self._prefix(child))
            elif child.type == "command_name":
                words += self.words(child.named_children[0] if child.named_children else child)
            elif child.type in ("file_redirect", "herestring_redirect"):
                redirects.append(self._redirect(child))
            elif child.is_named and child.type not in ("heredoc_redirect", "comment"):
                touching = bool(words) and child.start_byte == ended
                words[-1:] = (
                    [self.recorder.glued(words[-1], self.word(child))]
                    if touching
                    else [*words[-1:], *self.words(child)]
                )
            ended = child.end_byte
        if not words:
            return
        words += [word for child in behind for word in self.words(child)]
        name = words[0].text
        line = self.line(node)
        if name in ("source", ".") and len(words) > 1:
            self.ran(node, words[1:], called=True, checked=checked, prefix=tuple(prefix), after=after)
            self._other(words[1], line)
            return
        if name in ("read", "mapfile", "readarray", "getopts"):
            for word in words[1:]:
                if re.fullmatch(r"[A-Za-z_]\w*", word.text):
                    self.recorder.set(word.text, "", line, known=False, how="shell")
        if name == "set":
            self._options(words)
        if name in self.functions and self.calls < _CALLS:
            self._call(name, words, checked)
            return
        if (at := contained(words)) and self.calls < _CALLS:
            # What a container runs is run there, on its image.
            self.recorder.run(words[:at], line, line, shlex.join(word.text for word in words[:at]), checked=checked)
            outer = self.recorder.scope
            self.recorder.scope = self.trace.open(outer, "job container")
            if words[1].text == "run":
                self.trace.stands_on(words[at - 1].text, line, self.recorder.scope, words[at - 1].known)
            self._handed(handed_on(words[at:]) or Word(shlex.join(word.text for word in words[at:]), "", line))
            self.recorder.scope = outer
            return
        handed = handed_on(words)
        if handed is not None and self.calls < _CALLS:
            self._handed(handed)
            return
        said = {"redirects": tuple(redirects), "prefix": tuple(prefix)}
        self.ran(node, words, checked=checked, piped=piped, after=after, **said)
        if name in ("echo", "printf") and redirects:
            texts = [word.text.replace("\\n", "\n") for word in words[1:]]
            filled = "%s" in "".join(texts[:1])
            whole = "".join(texts[0].replace("%s", each) for each in texts[1:]) if filled else " ".join(texts)
            self.recorder.wrote(whole + "\n", redirects)
        self.recorder.moves(name, [word.text for word in words[1:]] or ["~"])

    def _handed(self, word: Word) -> None:
        """`bash -c "…"`: what stands in the quotes is run as if it stood here."""
        inner = _ShellReader(self.recorder, word.text + "\n", word.line)
        inner.depth, inner.functions, inner.calls = self.depth, self.functions, self.calls + _CALLS // 5
        inner.statements(parsed("bash", word.text + "\n"))

    def _other(self, word: Word, line: int) -> None:
        """`source env.sh`: what it sets and defines holds from here on."""
        with self.recorder.other(word, line) as found:
            if found is not None:
                inner = _ShellReader(self.recorder, found.text, 1)
                inner.depth, inner.functions = self.depth, self.functions
                root = parsed("bash", found.text)
                inner.statements(root)
                inner.errors(root)

    def _redirect(self, node: Node) -> Redirect:
        sign = next((item.type for item in node.children if not item.is_named), ">")
        target = text_of(node.child_by_field_name("destination"))
        return Redirect(sign=sign, target=target, line=self.line(node), glued=self.touches(node))

    def _prefix(self, node: Node) -> Assignment:
        value = node.child_by_field_name("value")
        word = self.word(value) if value is not None else Word("", "", self.line(node))
        return self.recorder.before(text_of(node.child_by_field_name("name")), word)

    def _options(self, words: list[Word]) -> None:
        """`set -euo pipefail`"""
        for index, word in enumerate(words[1:], 1):
            text = word.text
            long = words[index + 1].text if index + 1 < len(words) and re.fullmatch(r"[-+]\w*o", text) else ""
            if re.fullmatch(r"-\w*e\w*", text) or (text.startswith("-") and long == "errexit"):
                self.recorder.stops = True
            if re.fullmatch(r"\+\w*e\w*", text):
                self.recorder.stops = False
            if text.startswith("-") and long == "pipefail":
                self.recorder.pipefail = True
            if re.fullmatch(r"-\w*u\w*", text):
                self.trace.options["nounset"] = word.line

    def _call(self, name: str, words: list[Word], checked: bool) -> None:
        self.calls += 1
        self.called.add(name)
        given, known = LIST.join(word.text for word in words[1:]), all(word.known for word in words[1:])
        for each in "@*":
            self.recorder.set(each, given, words[0].line, known=known, how="shell")
        for number, word in enumerate(words[1:10], 1):
            self.recorder.set(str(number), word.text, word.line, known=word.known, how="shell")
        self.enter(self.functions[name], checked=checked)

    # --- what its words are, with their variables filled in ---------------------------------------------------------

    def words(self, node: Node) -> list[Word]:
        return self.word(node).apart(bare=node.type in ("simple_expansion", "expansion"))

    def word(self, node: Node) -> Word:
        text, known = self._value(node, 0)
        raw = text_of(node)
        return Word(text, raw, self.line(node), raw[:1] in "\"'", known)

    def _value(self, node: Node, depth: int) -> tuple[str, bool]:
        kind = node.type
        if depth > 12:
            return text_of(node), False
        if kind in ("word", "number", "special_character", "string_content", "variable_name", "extglob_pattern"):
            raw = text_of(node)
            return (
                (re.sub(r"\\(\n|.)", lambda m: "" if m[1] == "\n" else m[1], raw), True) if "\\" in raw else (raw, True)
            )
        if kind == "raw_string":
            return text_of(node)[1:-1], True
        if kind == "ansi_c_string":
            return text_of(node)[2:-1], True
        if kind in ("string", "concatenation", "command_name", "array", "translated_string"):
            return self._parts(node, depth)
        if kind == "simple_expansion":
            return self._variable(text_of(node).lstrip("$"), node)
        if kind == "expansion":
            return self._expansion(node, depth)
        if kind == "command_substitution":
            self.recorder.child = True
            self._subshell(node, True)
            self.recorder.child = False
            return self._printed(node)
        return text_of(node), False

    def _printed(self, node: Node) -> tuple[str, bool]:
        """`$(echo $CUDA | cut -d. -f1,2 | tr -d .)`: what is echoed and then only cut."""
        line = node.named_children[0] if node.named_children else node
        parts = [part.named_children for part in (line.named_children if line.type == "pipeline" else ())]
        rows = [[each.named_children[0] if each.type == "command_name" else each for each in part] for part in parts]
        text = printed([[word.text for each in row for word in self.words(each)] for row in rows])
        return (text_of(node), False) if text is None else (text, True)

    def _parts(self, node: Node, depth: int) -> tuple[str, bool]:
        between = LIST if node.type == "array" else ""
        pieces: list[str] = []
        known = True
        for child in node.named_children:
            if child.type == "comment":
                continue
            text, sure = self._value(child, depth + 1)
            pieces.append(text)
            known = known and sure
        if node.type == "string" and not pieces:
            return text_of(node)[1:-1], True
        if node.type == "string":
            return self._spaced(node, pieces), known
        return between.join(pieces), known

    def _spaced(self, node: Node, pieces: list[str]) -> str:
        """The grammar drops blanks between two expansions in a string; here they are put back."""
        whole = node.text or b""
        text, at = "", 1
        for child, piece in zip((c for c in node.named_children if c.type != "comment"), pieces, strict=False):
            begin = child.start_byte - node.start_byte
            text += whole[at:begin].decode("utf-8", "replace") + piece
            at = child.end_byte - node.start_byte
        return text + whole[at:-1].decode("utf-8", "replace")

    def _variable(self, name: str, node: Node) -> tuple[str, bool]:
        found = self.recorder.lookup(name)
        if found is not None:
            return found.text, found.known
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            self.recorder.missed(name, self.line(node))
        return text_of(node), False

    def _expansion(self, node: Node, depth: int) -> tuple[str, bool]:
        """`${X}`, `${X:-default}`, `${X%.*}`; other forms are not followed."""
        inner = text_of(node)[2:-1]
        match = re.match(r"([A-Za-z_]\w*|\d)(\[[@*]\])?", inner)
        if not match:
            return text_of(node), False
        rest = inner[match.end() :]
        if rest[:2] in (":-", "-", ":=", "=") or rest[:1] in ("-", "="):
            self.trace.asked.add(match[1])
            found = self.recorder.lookup(match[1])
            self.trace.offered |= {match[1].upper()} if found is None else set()
            if found is not None and (found.text or not rest.startswith(":")):
                return found.text, found.known
            default = [child for child in node.named_children if child.type not in ("variable_name",)]
            text = self._value(default[-1], depth + 1)[0] if default else ""
            if "=" in rest[:2]:
                self.recorder.set(match[1], text.strip("\"'"), self.line(node), known="$" not in text, how="shell")
            # The default holds unless somebody outside says otherwise.
            return text.strip("\"'"), "$" not in text
        if rest.startswith((":?", "?", ":+", "+")):
            self.trace.asked.add(match[1])
        text, known = self._variable(match[1], node)
        if not rest:
            return text, known
        cut = re.fullmatch(r"(%%?|##?)(.+)", rest)
        if known and cut and re.fullmatch(r"[\w.*/-]+", cut[2]):
            return trimmed(text, cut[1], cut[2]), True
        gone = re.fullmatch(r"//([^/]+)/([^/]*)", rest)
        if known and gone and "*" not in gone[1] and "$" not in rest:
            return text.replace(gone[1].replace("\\", ""), gone[2]), True
        return text_of(node), False
