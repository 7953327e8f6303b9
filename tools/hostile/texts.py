"""Texts that a build, a user or a stranger may have left: logs, caches, snapshots, plans, journals, RECORD."""

from __future__ import annotations

import json
import random

from tools.hostile import mostly

WORDS = (
    "error: ", "FAILED: ", "nvcc fatal   : ", "CMake Error at ", "ninja: build stopped: ", "fatal error C1060: ",
    "undefined reference to `", "ImportError: ", "No module named ", "\x1b[31m", "\u202e", "\0", "\r", "\x85", "\ufeff",
    "/home/jane/x", "C:\\Users\\Jane\\x", "code=[sm_50,compute_50]", "-gencode arch=compute_35,code=sm_35",
    "-gencode arch=compute_,code=lto_99", "arch=sm_9999999999999999999", "(((((", "[[[[[", "{" * 50, "::" * 30,
    "=" * 40,
)  # fmt: skip
NUMBERS = ("0", "-1", "1", "²", "9" * 30, "9" * 5000, "1e999", "NaN", "0x10", " 5", "99999999999999", "")


def line(dice: random.Random, longest: int = 8) -> str:
    return "".join(dice.choice(WORDS) for _ in range(dice.randrange(1, longest)))


def log(dice: random.Random) -> bytes:
    kind = dice.randrange(5)
    if kind == 0:
        return (line(dice) * mostly(dice, [1, 100, 1000], [20_000])).encode()
    if kind == 1:
        one = line(dice, 4) + "\n"
        return (one * mostly(dice, [10, 300], [3000, 30_000])).encode()
    if kind == 2:
        nested = "".join(f"{'  ' * n}In file included from a{n}.h:\n" for n in range(dice.choice([10, 100])))
        return (nested + line(dice)).encode()
    if kind == 3:
        return bytes(dice.getrandbits(8) for _ in range(dice.choice([10, 3000])))
    return "\n".join(line(dice) for _ in range(dice.randrange(1, 300))).encode("utf-8", "surrogatepass")


def ninja_log(dice: random.Random) -> bytes:
    out = [dice.choice(["# ninja log v5", "# ninja log v6", "# ninja log v", "rubbish", ""])]
    name = "o" * dice.choice([1, 10, 4000])
    for number in range(mostly(dice, [0, 1, 100], [20_000])):
        row = [dice.choice(NUMBERS), dice.choice(NUMBERS), "0", name + str(number % 7), "ab"]
        out.append("\t".join(row[: dice.choice([5, 5, 5, 3, 6])]))
    return "\n".join(out).encode("utf-8", "surrogatepass")


def cmake_cache(dice: random.Random) -> bytes:
    out = []
    for number in range(mostly(dice, [0, 10, 100], [1000, 20_000])):
        name = dice.choice(["USE_CUDA", "CMAKE_ARGS", "A" * 2000, "x y", "", "//c", "#c", line(dice, 2)])
        out.append(f"{name}{number % 5}:{dice.choice(['BOOL', 'STRING', 'x', ''])}={line(dice, 3)}")
    out.append(":" * dice.choice([0, 10, 5000]) + "=" * 10)
    out.append("--   " + "a " * dice.choice([1, 100, 3000]) + dice.choice([": ON", "", ":"]))
    return "\n".join(out).encode("utf-8", "surrogatepass")


def build_ninja(dice: random.Random) -> bytes:
    out = []
    for _ in range(mostly(dice, [0, 5, 50], [500])):
        out.append(f"build x.o: {dice.choice(['CUDA_COMPILER__torch', 'CXX', ''])} x.cu")
        out.append("  FLAGS = " + " ".join(dice.choice(WORDS[17:20]) for _ in range(dice.choice([1, 20, 500]))))
        if dice.random() < 0.3:
            codes = dice.choice(["50,code=sm_50", "x,code=y", "90a,code=[]"])
            out.append(f"  command = nvcc -gencode arch=compute_{codes}")
    return "\n".join(out).encode("utf-8", "surrogatepass")


def value(dice: random.Random, depth: int = 0) -> object:
    """Any JSON value, sometimes too deep, too long or of the wrong kind."""
    kind = dice.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.choice([0, -1, 1 << 70, 1.5, 1e308])
    if kind < 5:
        return dice.choice(["", "x", line(dice, 3), dice.choice(NUMBERS), "s" * 3000])
    if kind < 7:
        return [value(dice, depth + 1) for _ in range(dice.choice([0, 1, 5]))]
    return {line(dice, 2): value(dice, depth + 1) for _ in range(dice.choice([0, 1, 5]))}


def twisted(dice: random.Random, good: object) -> object:
    """A good answer in which a few values were replaced, removed or repeated."""
    if dice.random() < 0.02:
        return value(dice)
    if isinstance(good, dict):
        changed = {key: twisted(dice, item) for key, item in good.items() if dice.random() > 0.01}
        if dice.random() < 0.02:
            changed[line(dice, 2)] = value(dice)
        return changed
    if isinstance(good, list):
        changed_list = [twisted(dice, item) for item in good]
        return changed_list * (dice.choice([0, 2, 50]) if dice.random() < 0.02 else 1)
    if isinstance(good, str) and dice.random() < 0.03:
        return dice.choice([line(dice), good * dice.choice([0, 2, 300]), dice.choice(NUMBERS)])
    return good


def as_json(dice: random.Random, good: object) -> bytes:
    text = json.dumps(twisted(dice, good))
    kind = dice.random()
    if kind < 0.05:
        text = text[: dice.randrange(len(text))]
    elif kind < 0.08:
        text = "[" * dice.choice([10, 5000, 100_000]) + text
    elif kind < 0.1:
        text = '{"schema": ' + "9" * dice.choice([100, 10_000]) + "}"
    return text.encode("utf-8", "surrogatepass")


def journal(dice: random.Random) -> bytes:
    good = {
        "at": "2026-01-01T00:00:00Z", "event": "begin", "run": "ab", "step": "compile", "inputs": "x",
        "outputs": {"a": "there"}, "pid": 1, "code": 0, "log": "x.log",
    }  # fmt: skip
    lines = [as_json(dice, good) for _ in range(mostly(dice, [0, 1, 30], [2000]))]
    return dice.choice([b"\n", b"\n\n", b"\r\n", b"\0\n"]).join(lines) + dice.choice([b"", b"\n", b"{"])


def record(dice: random.Random) -> bytes:
    rows = []
    for number in range(mostly(dice, [0, 5, 50], [3000])):
        name = dice.choice([f"demo/{number}.py", '"demo/a,b', line(dice, 3), "../up", "demo/" + "x" * 2000])
        rows.append(f"{name},{dice.choice(['sha256=abc', 'md5=1', '', line(dice, 2)])},{dice.choice(NUMBERS)}")
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def metadata(dice: random.Random) -> bytes:
    fields = ("Name: ", "Version: ", "Requires-Dist: ", "Tag: ", "", " ")
    rows = [dice.choice(fields) + line(dice, 4) for _ in range(40)]
    rows += ["Requires-Dist: x ; " + "(" * dice.choice([1, 200, 3000]) + "python_version > '3'"]
    return "\n".join(rows).encode("utf-8", "surrogatepass")
