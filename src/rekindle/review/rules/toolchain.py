"""The toolkit against the release and cuDNN; gcc and MSVC against the toolkit; is a compiler loaded at all?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.compat.host_compiler import builds_torch, newest_gcc, takes_compiler, toolset_range, toolsets_of
from rekindle.compat.judgement import Clash, Fits
from rekindle.compat.library_card import compiles_with, cudnn_serves, lines_serve
from rekindle.core.regex import re2
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.torch.releases import TorchRelease, torch_releases
from rekindle.model.card import Target
from rekindle.model.cuda_line import CudaLine, cuda_in
from rekindle.model.host_compiler import gcc, msvc
from rekindle.review.builds import ScriptBuild, image_system
from rekindle.review.document import Dialect
from rekindle.review.environment import environments_of
from rekindle.review.judging import ready_made
from rekindle.review.packages import CUDNN
from rekindle.review.pythons import image_of
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.architecture import compiled_for
from rekindle.review.subject import Known, Subject, toolkit_in
from rekindle.review.trace import Invocation

_VCVARS = re.compile(
    r"(?i)vcvars(?:all|\w*64|32|\w*_x86)?\.bat|vcvars(?:all|64|32)\b|vsdevcmd(?:\.bat)?|launch-vsdevshell"
    r"|enter-vsdevshell|devshell"
)
_X86 = re.compile(r"(?i)vcvars32\.bat|vcvarsall(?:\.bat)?\"? +x86\b(?!_)|vcvars\w*_x86\.bat|vcvarsx86|-arch=x86\b")
_OF_THE_PROMPT = frozenset(
    {"VSCMD_VER", "VCINSTALLDIR", "VSINSTALLDIR", "VCTOOLSVERSION", "DEVENVDIR", "VSCMD_ARG_TGT_ARCH"}
)


def check(subject: Subject) -> Iterator[Raised]:
    told: set[str] = set()
    for step in subject.builds:
        either: list[Known | None] = [*subject.cudas_at(step.item)]
        for cuda in either or [None]:
            for found in (*_release(subject, step, cuda), *_gcc(subject, step, cuda), *_msvc(subject, step, cuda)):
                key = f"{found.rule} {found.line}"
                if key not in told:
                    told.add(key)
                    yield found
    yield from _gone(subject)
    yield from _nvtx(subject)
    yield from _two_toolkits(subject)
    yield from _cudnn(subject)
    yield from _loaded(subject)
    yield from _flags(subject)
    yield from _images(subject)


def _release(subject: Subject, step: ScriptBuild, cuda: Known | None) -> Iterator[Raised]:
    release = subject.release_at(step.item)
    neither = _no_toolkit(subject, *release, cuda) if release is not None and step.what == "torch" else None
    if neither is not None:
        yield neither
        return
    if cuda is None:
        return
    if step.what == "extension":
        yield from _torchs_own(subject, step, cuda)
    if release is None or step.what != "torch":
        return
    row, torch = release
    newest = max(variant.cuda for variant in row.variants)
    official = sorted({variant.cuda for variant in row.variants})
    if cuda.version < row.min_cuda:
        yield raised("toolkit-too-old-for-torch", cuda.line, torch=torch.version, need=row.min_cuda, cuda=cuda.version)
    elif cuda.version.major > newest.major:
        yield raised(
            "toolkit-too-new-for-torch", cuda.line, torch=torch.version, cuda=cuda.version, newest=newest,
            major=cuda.version.major,
        )  # fmt: skip
    elif (pair := cuda.version.major_minor) not in official:
        cards = {Target.parse(target).capability for target in compiled_for(subject)}
        listed = ", ".join(str(version) for version in official)
        if not any(limits.built_by(str(torch.version), pair, subject.system(), card) for card in cards):
            yield raised("toolkit-never-released", cuda.line, torch=torch.version, official=listed, cuda=cuda.version)


def _no_toolkit(subject: Subject, row: TorchRelease, torch: Known, cuda: Known | None) -> Raised | None:
    """The release needs a newer CUDA than the last one that makes code for the card: another CUDA does not help."""
    for card in subject.gpus:
        last = toolkits.last_toolkit_for(card)
        if last is None or last.version >= row.min_cuda:
            continue
        other = next((each for each in reversed(torch_releases()) if each.min_cuda <= last.version), None)
        return raised(
            "no-toolkit-for-both", (cuda or torch).line, torch=torch.version, need=row.min_cuda, card=card, sm=card.sm,
            last=last.version, other=f"; torch {other.newest} is the last that builds with it" if other else "",
            source=row.source,
        )  # fmt: skip
    return None


def _torchs_own(subject: Subject, step: ScriptBuild, cuda: Known) -> Iterator[Raised]:
    """An extension is compiled with the CUDA of its torch."""
    made = environments_of(subject)
    # Notes show several ways, and the toolkit of one stands beside the torch of another.
    lines = [CudaLine.parse(torch.variant) for torch in (made.every if subject.notes else made.at(step.item))]
    found = [line.cuda for line in lines if line is not None]
    if found and all(own.major != cuda.version.major for own in found):
        yield raised("toolkit-not-torchs", cuda.line, cuda=cuda.version, torch_cuda=found[0])


def _nvtx(subject: Subject) -> Iterator[Raised]:
    """nvToolsExt left the toolkit with 12.9; torch asked for it on Windows through 2.4."""
    for step in subject.torch_builds[:1]:
        cuda, torch = subject.cuda_at(step.item), subject.torch_at(step.item)
        if not (cuda and torch) or subject.system(step.item) != "windows":
            continue
        if cuda.version >= limits.since("nvtx-gone") and torch.version < limits.since("nvtx-not-asked"):
            yield raised("nvtx-gone", cuda.line, cuda=cuda.version, torch=torch.version)


def _two_toolkits(subject: Subject) -> Iterator[Raised]:
    told: set[int] = set()
    for step in subject.builds if not subject.notes else ():
        either = subject.cudas_at(step.item)
        cuda = either[0] if either else None
        versions = {known.version for known in either}
        homes = ("CUDA_HOME", "CUDA_PATH", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT", "CUDACXX", "CUDA_BIN_PATH")
        for name in (*homes, "PATH"):
            value = subject.visible(name, step.item)
            other = toolkit_in(value.text) if value is not None else None
            if cuda is None or value is None or other is None or other in versions or value.line in told:
                continue
            told.add(value.line)
            yield raised("two-toolkits", value.line, name=name, other=other, cuda=cuda.version, line_cuda=cuda.line)


def _gcc(subject: Subject, step: ScriptBuild, cuda: Known | None) -> Iterator[Raised]:
    found: list[tuple[str, int, int]] = []
    for name in ("CUDAHOSTCXX", "CXX", "CC", "NVCC_CCBIN"):
        value = subject.visible(name, step.item)
        if value and (match := re.search(r"(?:gcc|g\+\+|gxx)-?(\d{1,9})(?!\d)\Z|/gcc[-/](\d{1,9})", value.text)):
            found.append((value.text, int(match[1] or match[2]), value.line))
    for item in subject.trace.before(step.item) if not found else ():
        match = re.search(r"(?i)\bgcc/(\d\d?)", " ".join(item.arguments)) if item.program in ("module", "ml") else None
        if match and not found:
            found.append((f"gcc {match[1]}", int(match[1]), item.line))
    names = ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_C_COMPILER")
    for setting in subject.trace.assignments:
        ours = setting.how == "cmake" and setting.name in names
        if ours and (match := re.search(r"(?:gcc|g\+\+)-(\d{1,9})\Z", setting.value)):
            found.append((setting.value, int(match[1]), setting.line))
    if not found and cuda is not None and step.what != "other":
        found += _own_gcc(subject, step.item, cuda.line)
    if not found:
        return
    # The first of the variables that count decides; report where the first of them is set.
    compiler, major, _ = found[0]
    line = min(each[2] for each in found if each[1] == major)
    if cuda is not None:
        answer = takes_compiler(cuda.version, gcc(major))
        if isinstance(answer, Clash):
            yield raised(
                "gcc-refused", line, compiler=compiler, cuda=cuda.version, reason=answer.sentence,
                most=newest_gcc(cuda.version), source=answer.source,
            )  # fmt: skip
    release = subject.release_at(step.item)
    if release and step.what == "torch" and isinstance(builds_torch(release[0].newest, major), Clash):
        yield raised("gcc-too-old", line, torch=release[1].version, need=release[0].min_gcc, compiler=compiler)


_OTHER_COMPILER = re.compile(
    r"(?i)(?:gcc|g\+\+|gxx|clang)[-_=/ ]?(?:\d|linux)|\bgxx\b|compilers?\b|ccbin|unsupported-compiler|toolset"
    r"|cibuildwheel|manylinux"
    r"|(?:conda|mamba)\b.*\bcuda-(?:nvcc|toolkit|compiler)"
)


def _packaged_gccs(subject: Subject, item: Invocation) -> tuple[str, tuple[int, int, int]] | None:
    """The distribution that a command runs on, its image's or else that of the machine which GitHub lends, with the
    GCC that is its own, the oldest and the newest of its packages."""
    runners = [each for each in subject.trace.runners if subject.sees(each.scope, item)]
    place = image_of(subject, item) or (runners[-1] if runners else None)
    name = place.name if place is not None and place.known else ""
    found = image_system(name.replace("ubuntu-latest", f"ubuntu-{limits.since('ubuntu-latest')}"))
    gccs = found[0].gcc.get(found[1]) if found else None
    return (f"{found[0].id} {found[1]}", gccs) if found and gccs else None


def _own_gcc(subject: Subject, item: Invocation, line: int) -> list[tuple[str, int, int]]:
    """The system's own compiler, where nothing before the build names or brings another."""
    packaged = _packaged_gccs(subject, item)
    seen = [each for each in subject.trace.before(item) if subject.stage(each.scope) == subject.stage(item.scope)]
    named = any(_OTHER_COMPILER.search(each.text) for each in (*seen, item))
    if packaged is None or named or subject.visible("CC", item) or subject.visible("CXX", item):
        return []
    system, (own, *_) = packaged
    return [(f"gcc {own} of {system}", own, line)]


def _gone(subject: Subject) -> Iterator[Raised]:
    """A compiler that the packages of the system do not have, or no longer."""
    if subject.says(r"(?i)apt-repository|\bppa:|sources\.list|toolchain"):
        return
    for item in subject.trace.ran("apt", "apt-get"):
        packaged = _packaged_gccs(subject, item) if "install" in item.arguments else None
        if packaged is None:
            continue
        system, (_, first, last) = packaged
        hosted = image_of(subject, item) is None  # the machines that GitHub lends bring newer ones of their own
        for word in item.words:
            match = re.fullmatch(r"(?:gcc|g\+\+)-(\d{1,2})", word.text)
            if match and (int(match[1]) < first or (int(match[1]) > last and not hosted)):
                there = system.capitalize()
                yield raised("gcc-not-there", word.line, system=there, package=match[0], first=first, last=last)
                return


def _msvc(subject: Subject, step: ScriptBuild, cuda: Known | None) -> Iterator[Raised]:
    if cuda is None or subject.system(step.item) != "windows":
        return
    toolset, studio, line = toolset_at(subject, step.item)
    span, fitting = toolset_range(cuda.version), "the MSVC range of this CUDA is not known"
    if span:
        fitting = f"CUDA {cuda.version} takes the MSVC toolsets {span[0]} to {span[1]}"
    if toolset is not None:
        answer = takes_compiler(cuda.version, msvc(toolset))
        if isinstance(answer, Clash):
            yield raised("toolset-refused", line, reason=answer.sentence, range=fitting, source=answer.source)
        return
    refused = {
        row: each for row in toolsets_of(studio) if isinstance(each := takes_compiler(cuda.version, msvc(row)), Clash)
    }
    if not studio or not refused:
        return
    source, every = next(iter(refused.values())).source, len(refused) == len(toolsets_of(studio))
    if every or max(toolsets_of(studio)) in refused:
        rule = "studio-refused" if every else "toolset-not-said"
        yield raised(rule, line, cuda=cuda.version, studio=studio, range=fitting, source=source)


def toolset_at(subject: Subject, item: Invocation) -> tuple[Version | None, str | None, int]:
    """The toolset that is loaded at a command, or the year of the Visual Studio whose newest it is."""
    toolset: Version | None = None
    studio: str | None = None
    line = item.line
    for each in (*subject.trace.before(item), item):
        if not _loads(each):
            continue
        number = re.search(r"(?i)-?vcvars_ver=(\d{1,9}\.\d{1,9})", each.text)
        year = re.search(r"(?i)Microsoft Visual Studio[\\/]+(20\d\d)", " ".join(word.text for word in each.words))
        toolset = Version(number[1]) if number else None
        studio = year[1] if year else studio
        line = each.line
    for used in subject.trace.used:
        given = used.given.get("toolset")
        if used.order < item.order and "msvc" in used.action and given and re.match(r"\d{1,9}\.\d{1,9}", given[0]):
            toolset, line = Version.find(given[0]), given[1]
    if toolset is None:
        for name in ("VCToolsVersion", "PATH", "INCLUDE", "CMAKE_GENERATOR_TOOLSET_VERSION"):
            value = subject.visible(name, item)
            if value and (number := re.search(r"(?i)(?:MSVC[\\/]+|^)(14\.\d{1,9})", value.text)):
                return Version(number[1]), None, value.line
    if toolset is None and studio is None and item.system == "windows" and subject.document.dialect is Dialect.WORKFLOW:
        studio = "2022"  # that of windows-latest, whose newest toolset is taken
    return toolset, studio, line


def _loads(item: Invocation) -> bool:
    if item.program in ("echo", "echo.", "write-host", "dir", "where", "test-path", "rem", "findstr", "if"):
        return False
    return bool(_VCVARS.search(item.program)) or (
        item.program in ("cmd", "import-module", "invoke-batchfile", "invoke-cmdscript", "call", "&")
        and bool(_VCVARS.search(" ".join(item.arguments)))
    )


def loaded_before(subject: Subject, item: Invocation) -> bool:
    """Whether something put a compiler on PATH for this command."""
    before = [each for each in subject.trace.before(item) if _loads(each)]
    if any(each.dialect is not Dialect.POWERSHELL or not _child_only(each) for each in before):
        return True
    names = ("INCLUDE", "VCINSTALLDIR", "VCToolsInstallDir")
    if any(re.search("msvc|vs-shell|vcvars", used.action) for used in subject.trace.used):
        return True
    on_path = re.search(r"(?i)MSVC[\\/]+\d|HostX?64", subject.text("PATH", item))
    if on_path or any(subject.visible(name, item) is not None for name in names):
        return True
    prompt = r"(?i)native tools|developer (?:command )?(?:prompt|powershell)|x64_x64 cross"
    if subject.trace.asked & _OF_THE_PROMPT or subject.says(prompt):
        return True
    return any(
        each.program in ("where", "where.exe", "get-command")
        and any(re.fullmatch(r"(?i)cl(?:\.exe)?", word) for word in each.arguments)
        for each in subject.trace.invocations
    )


_CALLED = re2.compile(r"(?i)\"?[^\"]*(?:vcvars\w*|vsdevcmd)(?:\.bat)?\"?")


def _child_only(item: Invocation) -> bool:
    """vcvars in a cmd child whose variables nobody takes over."""
    batch = item.program == "cmd" or item.program.endswith(".bat") or item.program.startswith(("vcvars", "vsdevcmd"))
    taken = re.search(r"&&?\s*\S", _CALLED.sub("", " ".join(item.arguments))) if batch else None
    return batch and not taken and not {*item.piped} & {"foreach-object", "%", "foreach"}


def _loaded(subject: Subject) -> Iterator[Raised]:
    if subject.notes:
        return
    loading, lost = [item for item in subject.trace.invocations if _loads(item)], False
    for item in loading:
        text = " ".join(word.text for word in item.words)
        if _X86.search(text):
            right = subject.rewritten(item.line, r"(?i)vcvars32\.bat", "vcvars64.bat")
            yield raised("x86-prompt", item.line, corrected=right)
        number = re.search(r"(?i)-vcvars_ver=(\d[\d.]*)", text)
        if number and not number[1].startswith("14"):
            yield raised("vcvars-version", item.line, version=number[1])
        bare = re.fullmatch(r"(?i)vcvarsall(?:\.bat)?", item.program) and not item.arguments
        if bare and "%*" not in item.text and "%1" not in item.text:
            yield raised("vcvars-architecture", item.line)
        if item.dialect is not Dialect.BATCH and _child_only(item):
            lost, shell = True, "PowerShell" if item.dialect is Dialect.POWERSHELL else "shell"
            yield raised("environment-lost", item.line, shell=shell)
    # Whoever starts a part of something larger may have loaded the compiler.
    for step in subject.builds if not (lost or subject.helper) else ():
        if subject.system(step.item) != "windows" or step.what == "other" or not step.item.dialect.windows:
            continue
        has, rule = loaded_before(subject, step.item), ""
        on = subject.text("DISTUTILS_USE_SDK", step.item).strip() not in ("", "0")
        words = (subject.text("CMAKE_GENERATOR", step.item), *step.item.arguments)
        by_studio = any("visual studio" in word.lower() for word in words)
        if has and loading and not on and step.what == "extension" and step.certain:
            rule = "use-sdk-missing"
        elif not has and (on or (step.what == "torch" and not by_studio)):
            rule = "no-vcvars-sdk" if on else "no-vcvars"
        if rule:
            yield raised(rule, step.line)
            return


def _flags(subject: Subject) -> Iterator[Raised]:
    for item in subject.trace.assignments:
        if "allow-unsupported-compiler" not in item.value or item.how == "shell":
            continue
        steps = (each for each in subject.builds if each.item.order >= item.order or item.line in each.item.lines)
        step = next(steps, None)
        cuda = subject.cuda_at(step.item) if step is not None else None
        if step is None or cuda is None or subject.system(step.item) != "windows":
            continue
        toolset, studio, _ = toolset_at(subject, step.item)
        meant = [toolset] if toolset else toolsets_of(studio or "2022")
        answers = [takes_compiler(cuda.version, msvc(each)) for each in meant]
        whole = item.how == "cmake" and item.value == "-allow-unsupported-compiler"
        needless = bool(answers) and all(isinstance(each, Fits) for each in answers)
        yield raised(
            "unsupported-compiler-needless" if needless else "unsupported-compiler-flag", item.line, cuda=cuda.version,
            corrected="" if needless and whole else None, certain=False,
        )  # fmt: skip


def _cudnn(subject: Subject) -> Iterator[Raised]:
    told: set[str] = set()
    for version, line, major in _cudnn_points(subject):
        for card in subject.gpus:
            exact = len(version.parts) > 2
            served = (cudnn_serves if exact else lines_serve)(version, card, cuda_major=major)
            if isinstance(served, Clash) and f"{version}{card}" not in told:
                told.add(f"{version}{card}")
                yield raised("cudnn-not-for-the-card", line, sentence=served.sentence)
        for step in subject.torch_builds[:1]:
            torch = subject.torch_at(step.item)
            known = torch and subject.release_at(step.item)
            answer = compiles_with(str(torch.version), version) if torch and known else None
            if isinstance(answer, Clash) and f"{version}t" not in told:
                told.add(f"{version}t")
                yield raised("cudnn-too-new-for-torch", line, clash=answer.sentence, reason=answer.source)


def _cudnn_points(subject: Subject) -> Iterator[tuple[Version, int, int]]:
    """Every cuDNN that the script names: version, the first line that names it, the CUDA it is for."""
    seen: set[str] = set()
    cuda = subject.cuda_at(subject.builds[-1].item) if subject.builds else None
    default = cuda.version.major if cuda else 12
    # A ready-made torch brings the cuDNN that it uses.
    own = any(torch.kind == "wheel" for final in environments_of(subject).final for torch in final)
    for image in subject.trace.images if not own or subject.torch_builds else ():
        match = re.search(r"cudnn(\d{1,9})", image.name)
        if match and int(match[1]) < 100:
            yield Version(match[1]), image.line, (cuda_in(image.name) or Version(str(default))).major
    pattern = re.compile(r"(?i)cudnn[\w-]*?[-_/\\=]+v?(\d{1,9}\.\d{1,9}\.\d{1,9})(?:\.\d{1,9})?(?:[-_]cuda(\d{1,9}))?")
    texts = [(item.value, item.line) for item in subject.trace.assignments]
    texts += [(" ".join(word.text for word in item.words), item.line) for item in subject.trace.invocations]
    for text, line in texts:
        for match in pattern.finditer(text):
            if match[1] in seen:
                continue
            seen.add(match[1])
            rows = (
                row
                for row, each in enumerate(subject.document.lines, 1)
                if match[1] in each and not re.match(r"(?i)\s*(?:#|rem\b|::|//)", each)
            )
            yield Version(match[1]), next(rows, line), int(match[2] or default)
    for found in subject.installs:
        for wanted in found.wanted:
            package, exact = CUDNN.fullmatch(wanted.name), wanted.exact
            if package and exact is not None and len(exact.parts) > 1 and str(exact) not in seen:
                seen.add(str(exact))
                short = Version(".".join(str(part) for part in exact.parts[:3]))
                yield short, wanted.line, int(package[2] or default)


def _images(subject: Subject) -> Iterator[Raised]:
    for image in subject.trace.images:
        if not re.search(r"nvidia/cuda:\S*-(?:runtime|base)\b|pytorch/pytorch:\S*-runtime\b", image.name):
            continue
        brought = "\n".join(each.text for each in subject.trace.invocations)
        nvcc = "cuda-toolkit" in brought or "cuda-nvcc" in brought
        nvcc = nvcc or any(found.tool == "conda" and found.named("cuda") for found in subject.installs)
        host = re.search(r"build-essential|g\+\+|gxx|clang|compilers|conda-forge|apt\S* .*cuda|\.sh\b", brought)
        for step in subject.builds:
            if step.what == "other" or not step.certain or not subject.sees(image.scope, step.item):
                continue
            if not nvcc:
                yield raised("image-runtime", image.line, image=image.name, build=step.line)
                break
            if not host and not ready_made(subject, step):
                yield raised("image-no-compiler", step.line, image=image.name, name=step.name)
                break
