"""The grammar of cmd as a small parser of our own: blocks, `if`, `for`, chains, redirections, continued lines.

The grammar that can be had ready-made takes `.\\python.exe` for an error; cmd's own rules are few. Quotes never span
lines, `^` joins them, `(` opens a block only where a command may begin, `)` closes one only inside a block.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import msgspec

from rekindle.review.trace import Redirect, Word

DEEPEST = 60
# Runs of letters that mean nothing to cmd.
_PLAIN = re.compile(r"[^\s\"^&|<>)%\\`]+")
_SIGN = re.compile(r">>|.?")
# A quote that nobody closes ends with its line.
_WORD = re.compile(r"(?:\"[^\"\n]*\"?|[^\" \t(\n])*")
_TARGET = re.compile(r"&?(?:\"[^\"\n]*\"?|[^\" \t|)<>&\n])*")
_QUOTED = re.compile(r"[^\n\"%]+")
# `%PATH:"=%` is the value without its quotes; the one in it opens nothing.
_WITHOUT_QUOTES = re.compile(r"%\w+:[^%=\n]*=[^%\n]*%")


class BatchNode(msgspec.Struct, kw_only=True):
    """`kind`: command, block, if, for, label, comment. `after` is the operator that follows it."""

    kind: str
    line: int
    last: int
    raw: str = ""
    tokens: list[Word] = []
    targets: list[Redirect] = []
    body: list[BatchNode] = []
    otherwise: list[BatchNode] = []
    condition: str = ""
    after: str = ""


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: continuation, continuation-space, quote-open, unread."""

    kind: str
    line: int
    text: str


class BatchParser:
    def __init__(self, text: str, first: int = 1) -> None:
        self.text = text
        self.first = first
        self.at = 0
        self.complaints: list[Complaint] = []
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def parse(self) -> list[BatchNode]:
        return self._statements(0)

    def _line(self, at: int | None = None) -> int:
        return self.first + bisect_right(self._starts, self.at if at is None else at) - 1

    def _line_text(self) -> str:
        index = bisect_right(self._starts, self.at) - 1
        end = self.text.find("\n", self._starts[index])
        return self.text[self._starts[index] : end if end >= 0 else len(self.text)]

    def _statements(self, depth: int) -> list[BatchNode]:
        """Up to the `)` that closes this block, or the end."""
        found: list[BatchNode] = []
        while True:
            self._skip(" \t\n;,")
            if self.at >= len(self.text) or (depth and self.text[self.at] == ")"):
                return found
            found += self._chain(depth)

    def _chain(self, depth: int) -> list[BatchNode]:
        """`a && b || c & d` on one logical line."""
        found: list[BatchNode] = []
        while True:
            node = self._statement(depth)
            if node is None:
                return found
            found.append(node)
            self._skip(" \t")
            sign = next((sign for sign in ("&&", "||", "&", "|") if self.text.startswith(sign, self.at)), "")
            if not sign:
                return found
            node.after = sign
            self.at += len(sign)
            self._skip(" \t")
            if self.text.startswith("^\n", self.at):
                self.at += 2

    def _statement(self, depth: int) -> BatchNode | None:
        self._skip(" \t@")
        if self.at >= len(self.text) or self.text[self.at] == "\n":
            return None
        if depth and self.text[self.at] == ")":
            return None
        line, letter = self._line(), self.text[self.at]
        if letter == "(":
            return self._block(depth, line)
        if letter == ":":
            return self._to_end("label" if not self.text.startswith("::", self.at) else "comment")
        word = re.compile(r"[A-Za-z]+").match(self.text, self.at)
        name = word[0].lower() if word else ""
        following = self.text[word.end() : word.end() + 1] if word else ""
        if name == "rem" and following in (" ", "\t", "\n", "", ".", ",", ";", "-", "=", "/"):
            return self._to_end("comment")
        if name == "if" and following in (" ", "\t", "("):
            return self._if(depth, line)
        if name == "for" and following in (" ", "\t"):
            return self._for(depth, line)
        return self._command(depth)

    def _block(self, depth: int, line: int) -> BatchNode:
        if depth >= DEEPEST:
            self.complaints.append(Complaint(kind="unread", line=line, text="parentheses nested too deeply"))
            self.at = len(self.text)
            return BatchNode(kind="block", line=line, last=line)
        self.at += 1
        body = self._statements(depth + 1)
        last = self._line()
        if self.at < len(self.text):
            self.at += 1
        else:
            self.complaints.append(Complaint(kind="unread", line=line, text="a parenthesis is never closed"))
        node = BatchNode(kind="block", line=line, last=last, body=body)
        # `( … ) > log.txt 2>&1`
        while match := re.compile(r"[ \t]*\d?(>>?|<)[ \t]*(&\d|\"[^\"\n]*\"|[^\s&|()]+)").match(self.text, self.at):
            node.targets.append(Redirect(sign=match[1], target=match[2].strip('"'), line=self._line()))
            self.at = match.end()
        return node

    def _to_end(self, kind: str) -> BatchNode:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        node = BatchNode(kind=kind, line=self._line(), last=self._line(), raw=self.text[self.at : end])
        self.at = end
        return node

    def _if(self, depth: int, line: int) -> BatchNode:
        start = self.at
        self.at += 2
        self._condition()
        condition = self.text[start : self.at]
        self._skip(" \t")
        if self.text.startswith("^\n", self.at):
            self.at += 2
        body = self._one(depth)
        node = BatchNode(kind="if", line=line, last=self._line(), condition=condition, body=body, raw=condition)
        here = self.at
        other = re.compile(r"[ \t]*else\b[ \t]*", re.IGNORECASE).match(self.text, self.at)
        if other and body and body[-1].kind == "block":
            self.at = other.end()
            node.otherwise = self._one(depth)
        else:
            self.at = here
        node.last = self._line()
        return node

    def _one(self, depth: int) -> list[BatchNode]:
        """The body of an `if`: a block, or everything to the end of the line."""
        self._skip(" \t@")
        if self.text.startswith("(", self.at):
            return [self._block(depth, self._line())]
        return self._chain(depth)

    def _condition(self) -> None:
        while True:
            word = self._bare()
            low = word.lower()
            if low in ("/i", "not"):
                continue
            if low in ("exist", "defined", "errorlevel", "cmdextversion"):
                self._bare()
                return
            if "==" in word:
                if word.endswith("=="):
                    self._bare()
                return
            follows = re.compile(r"[ \t]*(==|(?:equ|neq|lss|leq|gtr|geq)\b)", re.IGNORECASE).match(self.text, self.at)
            if follows:
                self.at = follows.end()
                self._bare()
            return

    def _bare(self) -> str:
        self._skip(" \t")
        return self._taken(_WORD)

    def _taken(self, pattern: re.Pattern[str]) -> str:
        """What stands here of a pattern."""
        found = pattern.match(self.text, self.at)
        self.at += len(found[0]) if found else 0
        return found[0] if found else ""

    def _for(self, depth: int, line: int) -> BatchNode:
        start = self.at
        head = re.compile(r"for\b[^\n(]*\(", re.IGNORECASE).match(self.text, self.at)
        end = self._closing(head.end()) if head else None
        do = re.compile(r"[ \t]*\n?[ \t]*do\b", re.IGNORECASE).match(self.text, end) if end else None
        if do is None:
            return self._command(depth)
        self.at = do.end()
        head_text = self.text[start : do.start()]
        body = self._one(depth)
        return BatchNode(kind="for", line=line, last=self._line(), condition=head_text, raw=head_text, body=body)

    def _closing(self, at: int) -> int | None:
        open_, quote = 1, ""
        for index in range(at, min(len(self.text), at + 8000)):
            letter = self.text[index]
            if letter in "\"'`" and (not quote or quote == letter):
                quote = "" if quote else letter
            elif not quote and letter in "()":
                open_ += 1 if letter == "(" else -1
                if not open_:
                    return index + 1
        return None

    def _skip(self, letters: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in letters:
            self.at += 1

    def _command(self, depth: int) -> BatchNode:
        start, first = self.at, self._line()
        tokens: list[Word] = []
        targets: list[Redirect] = []
        word, raw, quote, quoted, at_line = "", "", False, False, first
        kept = ""

        def push() -> None:
            nonlocal word, raw, quoted
            if raw:
                tokens.append(Word(word, raw, at_line, quoted))
            word, raw, quoted = "", "", False

        text, size = self.text, len(self.text)
        while self.at < size:
            letter = text[self.at]
            if letter == "\n":
                if not (quote and raw.endswith("^")):
                    break
                # The open quote swallowed the sign; it is plain that the line was meant to go on.
                self.complaints.append(Complaint(kind="quote-open", line=self._line(), text=self._line_text()))
                word, raw, quote = word[:-1].rstrip(), raw[:-1].rstrip(), False
                push()
                self.at += 1
                self._skip(" \t")
                continue
            if not raw and letter not in " \t":
                at_line = self._line()
            plain = (_QUOTED if quote else _PLAIN).match(text, self.at)
            if plain:
                word, raw, kept = word + plain[0], raw + plain[0], kept + plain[0]
                self.at = plain.end()
                continue
            taken = _WITHOUT_QUOTES.match(text, self.at) if letter == "%" else None
            if taken:
                word, raw, kept = word + taken[0], raw + taken[0], kept + taken[0]
                self.at = taken.end()
                continue
            if letter == '"':
                quote, quoted = not quote, True
                raw += letter
            elif quote:
                word, raw = word + letter, raw + letter
            elif letter in "^\\`" and self._joins(letter):
                push()
                kept += " "
                continue
            elif letter == "^":
                self.at += 1
                if self.at < size and text[self.at] != "\n":
                    word, raw = word + text[self.at], raw + "^" + text[self.at]
                    kept += text[self.at]
                    self.at += 1
                continue
            elif letter in "&|" or (letter == ")" and depth):
                break
            elif letter in "<>":
                handle = raw[-1:] if raw and raw[-1].isdigit() and len(raw) == 1 else ""
                if handle:
                    word, raw = "", ""
                glued = bool(raw)
                push()
                sign, line = self._taken(_SIGN), self._line()
                self._skip(" \t")
                targets.append(Redirect(sign=sign, target=self._taken(_TARGET).strip('"'), line=line, glued=glued))
                continue
            elif letter in " \t":
                push()
            else:
                word, raw = word + letter, raw + letter
            kept += letter
            self.at += 1
        push()
        if quote:
            self.complaints.append(Complaint(kind="quote-open", line=self._line(), text=self._line_text()))
        return BatchNode(
            kind="command", line=first, last=self._line(), raw=kept.strip("\n") if kept else text[start : self.at],
            tokens=tokens, targets=targets,
        )  # fmt: skip

    def _joins(self, letter: str) -> bool:
        """`^` at the end of a line joins the next one; so do, in what was meant, the signs of other shells."""
        end = self.text.find("\n", self.at)
        if end < 0:
            return False
        rest = self.text[self.at + 1 : end]
        if rest.strip(" \t"):
            return False
        next_end = self.text.find("\n", end + 1)
        next_line = self.text[end + 1 : next_end if next_end >= 0 else len(self.text)]
        goes_on = bool(re.match(r"\s*[-/\"]", next_line))
        line = self._line()
        if letter != "^":
            if not goes_on or rest or not re.search(r"\s$", self.text[max(0, self.at - 1) : self.at]):
                return False
            self.complaints.append(Complaint(kind="continuation", line=line, text=self._line_text()))
        elif rest:
            if not next_line.strip():
                return False
            self.complaints.append(Complaint(kind="continuation-space", line=line, text=self._line_text()))
        self.at = end + 1
        self._skip(" \t")
        return True
