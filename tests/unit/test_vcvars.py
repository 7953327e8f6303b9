"""The pure parts of the Visual Studio capture, and what it makes of the answers of `cmd`. As Windows: tests/windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rekindle.build.configure.environment import BuildEnvironment, captured
from rekindle.core.errors import BadInput, StepFailed
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.machine.host import Recording, Replay, Said
from rekindle.machine.toolchain import toolkits
from rekindle.machine.toolchain.msvc import VcVars, capture, command_line, difference, parse_set, unvisited

STUDIO = r"C:\Program Files (x86)\Microsoft Visual Studio\2019\Community"
TOOLS = STUDIO + r"\VC\Tools\MSVC\14.29.30133"
BEFORE = {"Path": r"C:\Windows;C:\Git\bin", "SystemRoot": r"C:\Windows", "TEMP": r"C:\Users\Zoë\Temp"}
AFTER = BEFORE | {
    "Path": TOOLS + r"\bin\Hostx64\x64;C:\Windows;C:\Git\bin",
    "INCLUDE": TOOLS + r"\include",
    "LIB": TOOLS + r"\lib\x64",
    "VCINSTALLDIR": STUDIO + "\\VC\\",
    "VCToolsVersion": "14.29.30133",
    "VSCMD_ARG_TGT_ARCH": "x64",
    "__VSCMD_PREINIT_PATH": r"C:\Windows;C:\Git\bin",
}


class Cmd:
    """A `cmd` that answers with these variables before and after."""

    def __init__(self, after: Mapping[str, str], *, code: int | None = 0, err: str = "", late: bool = False) -> None:
        self.after, self.code, self.err, self.late = after, code, err, late
        self.args: Sequence[str] = ()
        self.env: dict[str, str] = {}

    def __call__(self, args: Sequence[str], *, env: dict[str, str], timeout: float, encoding: str) -> Result:
        assert encoding == "utf-16-le"
        self.args, self.env = args, env
        mark = args[-1].split(",")[1].split("&")[0]
        out = _printed(BEFORE) + mark + "\n" + (mark + "\n" + _printed(self.after) if self.code == 0 else "")
        return Result(args=tuple(args), code=self.code, out=out, err=self.err, seconds=timeout, timed_out=self.late)


def _printed(variables: Mapping[str, str]) -> str:
    return "=C:=C:\\work\n" + "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))


def test_the_difference_is_what_the_batch_file_changed_and_nothing_else() -> None:
    found = capture(STUDIO, toolset="14.29", environ=BEFORE, call=Cmd(AFTER))
    assert found.toolset == Version("14.29.30133")
    assert found.prepends == {
        "PATH": (TOOLS + r"\bin\Hostx64\x64",),
        "INCLUDE": (TOOLS + r"\include",),
        "LIB": (TOOLS + r"\lib\x64",),
    }
    assert set(found.sets) == {"VCINSTALLDIR", "VCToolsVersion", "VSCMD_ARG_TGT_ARCH"}
    assert found.removes == ()


def test_cmd_gets_the_command_through_a_variable_and_no_quotes_of_pythons_making() -> None:
    cmd = Cmd(AFTER)
    capture(STUDIO, toolset="14.29", environ=BEFORE, call=cmd)
    assert cmd.args[0] == r"C:\Windows\System32\cmd.exe"
    assert not set(cmd.args[-1]) & set(' "\t'), "subprocess would quote it, and cmd would read the quotes its own way"
    asked = cmd.env["REKINDLE_VCVARS"]
    assert asked == f'"{STUDIO}\\VC\\Auxiliary\\Build\\vcvarsall.bat" x64 -vcvars_ver=14.29 1>&2'


def test_another_shell_in_comspec_is_not_used() -> None:
    cmd = Cmd(AFTER)
    capture(STUDIO, environ={**BEFORE, "ComSpec": r"C:\tools\tcc\tcc.exe"}, call=cmd)
    assert cmd.args[0] == r"C:\Windows\System32\cmd.exe"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"INCLUDE": ""}, "did not set INCLUDE"),
        ({"LIB": ""}, "did not set LIB"),
        ({"VCToolsVersion": "14.16.27023"}, r"toolset 14.16.27023 instead of 14.29"),
        ({"VCToolsVersion": "14.2"}, r"toolset 14.2 instead of 14.29"),
        ({"VSCMD_ARG_TGT_ARCH": "x86"}, "set up for x86 instead of x64"),
    ],
)
def test_success_is_not_believed_without_the_variables(changed: dict[str, str], said: str) -> None:
    with pytest.raises(StepFailed, match=said):
        capture(STUDIO, toolset="14.29", environ=BEFORE, call=Cmd(AFTER | changed))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"code": 1, "err": "noise\n[ERROR:vcvars.bat] Toolset directory for version '14.29' was not found.\n"},
            "Tools",
        ),
        ({"err": "[ERROR:VsDevCmd.bat] *** VsDevCmd.bat encountered errors. ***"}, "encountered errors"),
        ({"code": None, "err": "[WinError 2] no such file"}, "could not be run"),
        ({"code": None, "late": True}, "timed out after 180 s"),
    ],
)
def test_every_way_to_fail_says_what_was_said_and_what_to_do(answer: dict[str, Any], said: str) -> None:
    with pytest.raises(StepFailed, match=said) as caught:
        capture(STUDIO, toolset="14.29", environ=BEFORE, call=Cmd(AFTER, **answer))
    assert STUDIO in caught.value.message
    assert "--toolset" in str(caught.value.hint)


def test_a_command_line_is_not_a_place_for_commands() -> None:
    for bad in ("14.29&calc", "", "14.29 x86", "%PATH%"):
        with pytest.raises(BadInput):
            command_line(STUDIO, toolset=bad)
    with pytest.raises(BadInput):
        command_line('C:\\VS" & calc "')
    assert command_line("S", toolset="14.29").endswith('vcvarsall.bat" x64 -vcvars_ver=14.29 1>&2')


def test_set_prints_drive_folders_and_values_of_several_lines() -> None:
    text = "\ufeff=C:=C:\\x\r\n=ExitCode=00000000\r\nA=1=2\r\nEMPTY=\r\nB=one\r\ntwo\r\n"
    assert parse_set(text) == {"A": "1=2", "EMPTY": "", "B": "one\ntwo"}


def _over(found: VcVars, environ: dict[str, str]) -> dict[str, str]:
    return BuildEnvironment(system="windows", changes=tuple(captured(found))).over(environ)


def test_names_have_no_case_and_taken_away_is_taken_away() -> None:
    found = difference({"Path": "a;b", "Gone": "1", "Same": "x"}, {"PATH": "c;A\\;b", "SAME": "x"})
    assert found.prepends == {"PATH": ("c",)}
    assert found.removes == ("Gone",)
    assert found.sets == {}
    assert _over(found, {"Path": "b;d", "GONE": "1", "Kept": "y"}) == {"Path": "c;b;d", "Kept": "y"}


def test_over_puts_new_entries_first_once_and_leaves_the_given_environment_alone() -> None:
    found = VcVars(toolset=None, prepends={"PATH": ("C:\\vc", "C:\\sdk")}, sets={"A": "1"})
    given = {"PATH": "C:\\git;c:\\VC\\;;C:\\x", "a": "0"}
    assert _over(found, given) == {"PATH": "C:\\vc;C:\\sdk;C:\\git;C:\\x", "a": "1"}
    assert given == {"PATH": "C:\\git;c:\\VC\\;;C:\\x", "a": "0"}


def test_a_prompt_that_was_set_up_before_is_left_first() -> None:
    prompt = AFTER | {"VSCMD_VER": "16.11.34", "WindowsSdkDir": "x", "PLATFORMIO_HOME": "kept", "Platform": "x64"}
    assert unvisited(prompt) == BEFORE | {"PLATFORMIO_HOME": "kept"}
    assert unvisited(BEFORE) == BEFORE


def test_nvcc_in_an_ordinary_prompt_is_told_where_a_compiler_is() -> None:
    """What the real nvcc.exe 13.4 says without `cl` on PATH; the second answer is as Debian's, in Windows' spelling."""
    studio = r"C:\VS\2019"
    toolset = studio + r"\VC\Tools\MSVC\14.29.30133"
    nvcc = r"C:\CUDA\v13.4\bin\nvcc.exe"
    vswhere = r"C:\PF86\Microsoft Visual Studio\Installer\vswhere.exe"
    dry = (
        "#$ _HERE_=C:\\CUDA\\v13.4\\bin\n#$ PATH=C:\\CUDA\\v13.4\\bin;C:\\Windows\n"
        '#$ ptxas -arch=sm_75 "x.ptx" -o "x.cubin"\n'
    )
    recording = Recording(
        os="windows",
        arch="x86_64",
        environment={"CUDA_PATH": r"C:\CUDA\v13.4", "ProgramFiles(x86)": r"C:\PF86"},
        commands={
            f"{nvcc} --dryrun -cubin -x cu NUL": Said(
                code=1, out="nvcc fatal   : Cannot find compiler 'cl.exe' in PATH\n"
            ),
            rf"{nvcc} -ccbin {toolset}\bin\Hostx64\x64 --dryrun -cubin -x cu NUL": Said(code=0, err=dry),
            f"{nvcc} --version": Said(code=0, out="Cuda compilation tools, release 13.4, V13.4.92"),
            f'"{vswhere}" -all -products * -prerelease -format json -utf8': Said(
                code=0, out='[{"installationPath": "C:\\\\VS\\\\2019", "installationVersion": "16.11.1.1"}]'
            ),
        },
        folders={studio + r"\VC\Tools\MSVC": ("14.29.30133",)},
        present=[
            nvcc,
            r"C:\CUDA\v13.4\bin\ptxas.exe",
            vswhere,
            toolset + r"\bin\Hostx64\x64\cl.exe",
        ],
    )
    found = toolkits.probe(Replay(recording))
    assert [(one.version, one.ptxas.path if one.ptxas else None) for one in found] == [
        (Version("13.4.92"), r"C:\CUDA\v13.4\bin\ptxas.exe")
    ]
