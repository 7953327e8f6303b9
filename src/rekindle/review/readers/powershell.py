"""PowerShell scripts: walked in order on the tree of the PowerShell grammar."""

from __future__ import annotations

import re
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from rekindle.core.regex import re2
from rekindle.review.document import Dialect
from rekindle.review.readers.conditions import holds
from rekindle.review.readers.grammar import parsed, text_of
from rekindle.review.readers.powershell_values import PowerShellValues, environment_name
from rekindle.review.readers.recorder import Recorder
from rekindle.review.trace import LIST, Redirect, Word, program_of

if TYPE_CHECKING:
    from tree_sitter import Node

_TURNS = 8  # of a loop
_CALLS = 100
_SETS = re2.compile(
    r"(?is)\[(?:System\.)?Environment\]::SetEnvironmentVariable\(\s*[\"'](\w+)[\"']\s*,\s*(.+?)\s*"
    r"(?:,\s*[\"']?(\S+?)[\"']?\s*)?\)\s*\z"
)
_MOST = 120_000
"""The grammar takes time by the square of a text that is none of its language: 23 s for 265 kB."""
_CONDITIONS = ("pipeline", "while_condition", "for_condition", "switch_condition")
_CHAIN = "pipeline_chain_tail"
_LOOKS = re.compile(r"(?i)\$LASTEXITCODE|\$\?")


def read_powershell(recorder: Recorder, text: str, first: int = 1) -> None:
    if len(text) > _MOST:
        text = text[: text.rfind("\n", 0, _MOST) + 1]
        recorder.trace.unread(first + text.count("\n"), "", f"only the first {_MOST:,} letters are read")
    reader = _PowerShellReader(recorder, text, first)
    # `@name` hands a list on; the grammar knows it as `$name` only.
    root = parsed("powershell", re.sub(r"(?<=[ \t])@(?=[A-Za-z_]\w*(?:[ \t\n;|)]|\Z))", "$", text))
    reader.collect(root)
    reader.walk(root)
    reader.never_called()
    reader.errors(root)


class _PowerShellReader(PowerShellValues):
    language = "PowerShell"

    def __init__(self, recorder: Recorder, text: str, first: int) -> None:
        super().__init__(recorder, text, first)
        self.plain: set[int] = set()
        self.passed: set[str] = set()

    def collect(self, root: Node) -> None:
        """A function may be called above its definition only within another; all names are known from the start."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.type == "function_statement":
                name = next((text_of(child) for child in node.children if child.type == "function_name"), "")
                self.functions.setdefault(name.lower(), node)
            elif node.child_count and node.type in ("program", "statement_list", "script_block", "script_block_body"):
                waiting += node.children

    def read_plainly(self, row: int, text: str) -> bool:
        """A plain command that the grammar stumbles over is read word by word."""
        first, last = row, row
        while first > 0 and self.lines[first - 1].rstrip().endswith("`"):
            first -= 1
        while last + 1 < len(self.lines) and self.lines[last].rstrip().endswith("`"):
            last += 1
        text = " ".join(each.rstrip().removesuffix("`") for each in self.lines[first : last + 1])
        line = first + self.first
        begins = text.lstrip("& \t\"'")
        read = (item for item in self.trace.invocations if item.line == line and item.words)
        if line in self.plain or any(begins.startswith(item.words[0].text) for item in read):
            return not re.search(r"[{}]", text)
        choice = re.match(r"\s*\$(env:)?(\w+)\s*=\s*\(.*\)\s*\?\s*\S+.*:", text)
        if choice:
            # `$x = (…) ? a : b` of PowerShell 7
            how = "environment" if choice[1] else "shell"
            self.recorder.set(choice[2], "", line, known=False, how=how, text=text)
            self.plain.add(line)
            return True
        if not re.match(r"\s*(?:&\s*)?[\w.\\:/'\"-]+(?:\s|$)", text) or re.search(r"[{}|;=]\s*$|[{}]", text):
            return False
        self.plain.add(line)
        self.recorder.run(self._pieces(text, line), line, line, text)
        return True

    def _pieces(self, text: str, line: int) -> list[Word]:
        words = []
        for piece in re.findall(r"\"[^\"]*\"|'[^']*'|[^\s\"']+", text.strip().lstrip("& ")):
            filled, known = self.filled(piece.strip("\"'"), None) if piece[:1] != "'" else (piece.strip("'"), True)
            words.append(Word(filled, piece, line, piece[:1] in "\"'", known))
        return words

    def walk(self, node: Node, *, checked: bool = False) -> None:
        """Every statement below a node, in order."""
        if self.too_deep(node):
            return
        self.depth += 1
        statements = _statements(node)
        for index, child in enumerate(statements):
            if self.trace.full:
                break
            self._statement(child, checked or self._looked_at(statements, index))
        self.depth -= 1

    def _looked_at(self, statements: list[Node], index: int) -> bool:
        """The next statement looks at how this one ended, itself or through a function of the script."""
        for node in statements[index + 1 : index + 3]:
            text = text_of(node)[:2000]
            if _LOOKS.search(text):
                return True
            name = re.match(r"\s*([\w-]+)", text)
            function = self.functions.get(name[1].lower()) if name else None
            if function is not None:
                return bool(_LOOKS.search(text_of(function))) and "{" not in text
            if not re.match(r"(?i)\s*(?:Write-|echo|Pop-Location|Stop-Transcript)", text):
                return False
        return False

    def _statement(self, node: Node, checked: bool) -> None:
        kind = node.type
        if kind == "pipeline":
            self._pipeline(node, checked)
        elif kind == "function_statement":
            return
        elif kind == "param_block":
            self._parameters(node)
        elif kind == "try_statement":
            for child in node.named_children:
                self.recorder.conditional += child.type != "statement_block"
                self.walk(child, checked=checked)
                self.recorder.conditional -= child.type != "statement_block"
        elif kind == "flow_control_statement":
            self.ran(node, [Word(part, part, self.line(node)) for part in text_of(node).split()[:3]])
        elif kind in ("comment", "command_argument_sep"):
            return
        elif kind == "ERROR":
            self.walk(node)
        else:
            self._conditional(node, checked)

    def _conditional(self, node: Node, checked: bool) -> None:
        if node.type == "foreach_statement":
            self.recorder.conditional += 1
            self._turns(node, checked)
            self.recorder.conditional -= 1
        inside = [child for child in node.named_children if child.type == "elseif_clauses"]
        clauses = [each for child in inside for each in child.named_children]
        clauses += [child for child in node.named_children if child.type == "else_clause"]
        self.recorder.branches(
            (partial(self._asked, part), partial(self._body, part, checked)) for part in (node, *clauses)
        )

    def _body(self, node: Node, checked: bool) -> None:
        for child in node.named_children:
            if child.type not in ("else_clause", "elseif_clauses", *_CONDITIONS):
                self.walk(child, checked=checked)

    def _asked(self, node: Node) -> bool | None:
        """Whether the condition of a branch holds; an `else` has none."""
        answer = True if node.type == "else_clause" else None
        for child in node.named_children:
            if child.type in _CONDITIONS:
                self.trace.asked.update(each.upper() for each in re.findall(r"(?i)\$(?:env:)?(\w+)", text_of(child)))
            if child.type == "pipeline" and node.type != "foreach_statement":
                self._pipeline(child, True)
                choice = node.type in ("if_statement", "elseif_clause")
                answer = holds(text_of(child).lower(), self.recorder.sure) if choice else None
        return answer

    def _turns(self, node: Node, checked: bool) -> None:
        """Each value of a list that is known but the last, with which the loop is then read like any other block."""
        over = next((child for child in node.named_children if child.type == "pipeline"), None)
        name = next((text_of(child).lstrip("$") for child in node.named_children if child.type == "variable"), "")
        text, known = self.value(over) if over is not None else ("", False)
        values = text.split(LIST) if known else []
        for value in values if len(values) <= _TURNS else ():
            self.recorder.set(name, value, self.line(node), how="shell")
            for child in node.named_children if value is not values[-1] else ():
                if child.type == "statement_block":
                    self.walk(child, checked=checked)

    def _parameters(self, node: Node) -> None:
        for parameter in _all(node, "script_parameter"):
            variable = next((child for child in parameter.children if child.type == "variable"), None)
            default = next((child for child in parameter.children if child.type == "script_parameter_default"), None)
            if variable is None:
                continue
            text, known = self.value(default.named_children[-1]) if default and default.named_children else ("", False)
            name = text_of(variable).lstrip("$")
            if name.lower() in self.passed:
                continue
            self.recorder.set(name, text, self.line(parameter), known=known, how="shell")
            self.trace.offered.add(name.upper())

    def _pipeline(self, node: Node, checked: bool) -> None:
        children = node.children
        chained = next((child for child in children if child.type == _CHAIN), None)
        if chained is not None and self.trace.dialect is Dialect.POWERSHELL and "chain" not in self.trace.options:
            self.trace.options["chain"] = self.line(chained)
            self.trace.slip("chain", self.line(chained))
        for child, following in zip_longest(children, children[1:]):
            if child.type == "assignment_expression":
                self._assign(child, checked)
            elif child.type == "pipeline_chain":
                self._chain(child, checked or (following is not None and following.type == _CHAIN))
            elif child.type == "pipeline":
                self._pipeline(child, checked)

    def _chain(self, node: Node, checked: bool) -> None:
        commands = [child for child in node.named_children if child.type == "command"]
        names = [self._name(command) for command in commands]
        for child in node.named_children:
            if child.type == "command":
                index = commands.index(child)
                for _ in self.recorder.worlds(text_of(child)):
                    self._command(child, checked, tuple(names[index + 1 :]))
            elif child.type not in ("redirections", "comment"):
                self._expression(child, checked)

    def _expression(self, node: Node, checked: bool) -> None:
        """An expression that stands alone: a call of .NET, a script block, a nested pipeline."""
        text = text_of(node)
        if match := _SETS.match(text):
            lasting = (match[3] or "process").lower().rpartition(".")[2].rpartition(":")[2]
            value = match[2].strip("\"'")
            how = "environment" if lasting == "process" else "lasting"
            self.recorder.set(match[1], value, self.line(node), known="$" not in value, how=how, text=text)
            return
        for block in _all(node, "script_block_expression"):
            self.walk(block, checked=checked)
        for inner in _all(node, "sub_expression", "parenthesized_expression"):
            self.walk(inner, checked=checked)

    def _assign(self, node: Node, checked: bool) -> None:
        left = next((child for child in node.children if child.type == "left_assignment_expression"), None)
        value_node = node.child_by_field_name("value")
        if left is None:
            return
        name = text_of(left).strip()
        name = re.sub(r"^\[[\w.\[\]]+\]\s*", "", name)
        sign = next((text_of(child) for child in node.children if child.type == "assignement_operator"), "=")
        text, known = ("", True)
        if value_node is not None:
            text, known = self.value(value_node)
            for command in _all(value_node, "command"):
                self._command(command, checked, ())  # `$x = python …` starts a program as well
        environment = environment_name(name)
        plain = environment or name.strip("${}").split(":")[-1]
        if sign.startswith("+"):
            before = self.recorder.lookup(plain)
            between = LIST if before and (LIST in before.text or LIST in text) else ""
            text = (before.text + between if before else "") + text
            known = known and before is not None and before.known
        if re.fullmatch(r"\w+", plain):
            self.recorder.set(
                plain,
                text,
                self.line(node),
                known=known,
                how="environment" if environment else "shell",
                raw=text_of(value_node),
                text=text_of(node),
                appended=sign.startswith("+") or f"$env:{plain}".lower() in text_of(value_node).lower(),
            )
        if plain.lower() == "erroractionpreference" and "stop" in text.lower():
            self.trace.options["stop"] = self.line(node)
        if plain.lower() == "psnativecommanduseerroractionpreference" and "true" in text_of(value_node).lower():
            self.recorder.stops = True

    def _name(self, node: Node) -> str:
        name = node.child_by_field_name("command_name")
        return program_of(text_of(name)) if name is not None else ""

    def _command(self, node: Node, checked: bool, piped: tuple[str, ...]) -> None:
        name_node = node.child_by_field_name("command_name")
        if name_node is None:
            for block in _all(node, "script_block_expression"):
                self.walk(block, checked=checked)
            return
        dotted = any(text_of(child) == "." for child in node.children if child.type == "command_invokation_operator")
        text = text_of(node)
        if node.has_error and not re.search(r"[{}|;<>`@\n]|\$\(", text):
            # `--ipc=host a/b:c`: the grammar loses where the words end.
            if pieces := self._pieces(text, self.line(node)):
                self._run(node, pieces, [], checked, piped, (), dotted)
            return
        words = [self.word(name_node)]
        redirects: list[Redirect] = []
        blocks: list[Node] = []
        elements = node.child_by_field_name("command_elements")
        for child in elements.named_children if elements is not None else ():
            if child.type == "command_argument_sep":
                continue
            if child.type == "redirection":
                redirects.append(self._redirect(child))
                continue
            found = _all(child, "script_block_expression")
            if found:
                blocks += found
            else:
                words += self._arguments(child, redirects)
        self._run(node, words, blocks, checked, piped, tuple(redirects), dotted)

    def _other(self, word: Word, line: int) -> None:
        """`. .\\env.ps1`: what it sets and defines holds from here on."""
        with self.recorder.other(word, line) as found:
            if found is not None:
                inner = _PowerShellReader(self.recorder, found.text, 1)
                inner.depth = self.depth
                root = parsed("powershell", found.text)
                inner.collect(root)
                inner.functions = self.functions | inner.functions
                inner.walk(root)
                self.functions |= inner.functions

    def _arguments(self, node: Node, redirects: list[Redirect]) -> list[Word]:
        """`numpy>=2` without quotes is `numpy` with its output in a file called `=2`; `2>$null` is no word."""
        raw = text_of(node)
        cut = (
            re.fullmatch(r"(?:([A-Za-z][\w.\[\]-]*)|[\d*])(>>?|<)(\S+)", raw) if node.type == "generic_token" else None
        )
        if cut is None:
            return self.word(node).apart()
        redirects.append(Redirect(sign=cut[2], target=cut[3], line=self.line(node), glued=bool(cut[1])))
        return [Word(cut[1], cut[1], self.line(node))] if cut[1] else []

    def _run(
        self, node: Node, words: list[Word], blocks: list[Node], checked: bool, piped: tuple[str, ...],
        redirects: tuple[Redirect, ...], dotted: bool,
    ) -> None:  # fmt: skip
        name = words[0].text.lower()
        function = self.functions.get(name)
        if blocks:
            looks = function is not None and bool(_LOOKS.search(text_of(function)))
            if function is not None:
                self.called.add(name)
            for block in blocks:
                self.walk(block, checked=checked or looks)
            if function is not None:
                return
        elif function is not None and self.calls < _CALLS:
            self._call(name, function, words)
            return
        if name in ("invoke-expression", "iex") and len(words) == 2 and words[1].known:
            self._handed(words[1].text, words[1].line)
            return
        if name == "start-process":
            words = [
                word
                for word in words[1:]
                if not re.match(r"(?i)-(?:filepath|argumentlist|wait|nonewwindow)\Z", word.text)
            ]
            words = [part for word in words for part in word.apart(bare=True)]
        called = dotted or name.endswith(".ps1")
        if self._sets(name, words, node):
            return
        self.ran(node, words, called=called, checked=checked, piped=piped, redirects=redirects)
        if dotted:
            self._other(words[0], self.line(node))
        self.recorder.moves(name, [word.text for word in words[1:] if not word.text.startswith("-")])

    def _handed(self, text: str, line: int) -> None:
        """`Invoke-Expression "…"`: what stands in the quotes is run as if it stood here."""
        inner = _PowerShellReader(self.recorder, text, line)
        inner.depth, inner.functions, inner.calls = self.depth, self.functions, self.calls + _CALLS // 5
        if inner.calls < _CALLS:
            inner.walk(parsed("powershell", text + "\n"))

    def _call(self, name: str, function: Node, words: list[Word]) -> None:
        self.calls += 1
        self.called.add(name)
        found = _all(function, "variable")[: len(words) + 8]
        names = list(dict.fromkeys(text_of(child).lstrip("$").lower() for child in found))
        said = ""
        for word in words[1:]:
            option = word.text.lstrip("-").lower() if word.text.startswith("-") else ""
            if not option and (said or names):
                name = said or names[0]
                names = [each for each in names if each != name]
                self.passed.add(name)
                self.recorder.set(name, word.text, word.line, known=word.known, how="shell")
            said = option if option in names else ""
        self.enter(function)
        self.passed.clear()

    def enter(self, function: Node) -> None:
        for child in function.children:
            if child.type == "script_block":
                self.walk(child)

    def _sets(self, name: str, words: list[Word], node: Node) -> bool:
        """Set-Item Env:X value"""
        if name not in ("set-item", "si", "new-item", "set-content"):
            return False
        place = next((word for word in words[1:] if re.match(r"(?i)env:\\?\w+$", word.text)), None)
        if place is None:
            return False
        rest = [word for word in words[1:] if word is not place and not word.text.startswith("-")]
        value = rest[0] if rest else Word("", "", self.line(node), False, False)
        self.recorder.set(
            re.split(r"[:\\]", place.text)[-1], value.text, self.line(node), known=value.known, text=text_of(node)
        )
        return True

    def _redirect(self, node: Node) -> Redirect:
        text = text_of(node)
        sign = re.match(r"[\d*]?(>>?|<)", text)
        target = text[sign.end() :].strip() if sign else text
        glued = self.touches(node) and not text[:1].isdigit()
        return Redirect(sign=sign[1] if sign else ">", target=target, line=self.line(node), glued=glued)


_HOLDERS = frozenset(
    {
        "program", "statement_list", "script_block", "script_block_body", "statement_block", "script_block_expression",
        "sub_expression", "parenthesized_expression", "catch_clause", "catch_clauses", "finally_clause", "else_clause",
        "elseif_clauses", "elseif_clause", "switch_body", "switch_clauses", "switch_clause", "switch_clause_block",
        "named_block_list", "named_block", "ERROR",
    }
)  # fmt: skip


def _statements(node: Node) -> list[Node]:
    """The statements right below a node, through the wrappers the grammar puts round them."""
    found: list[Node] = []
    for child in node.named_children:
        if child.type in _HOLDERS and child.type != "ERROR":
            found += _statements(child)
        elif child.type not in ("comment",):
            found.append(child)
    return found


def _all(node: Node, *types: str) -> list[Node]:
    """Every node of these types below, the outermost only."""
    found: list[Node] = []
    waiting = list(reversed(node.children))
    if node.type in types:
        return [node]
    while waiting:
        item = waiting.pop()
        if item.type in types:
            found.append(item)
        else:
            waiting += reversed(item.children)
    return found
