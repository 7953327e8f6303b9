from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console

if TYPE_CHECKING:
    from rekindle.wheels.verify.stand_in import StandInRequest
    from rekindle.wheels.verify.verify import Verification


@click.command("verify")
@click.argument("subjects", metavar="[WHEEL|DIR|ENV]...", nargs=-1, type=click.Path(path_type=Path))
@options.gpus
@options.torch("The PyTorch release it should be.")
@options.cuda("The CUDA it should be built with.")
@options.path("--plan", "FILE", "Check it against this plan.")
@click.option("--python", metavar="PATH", help="The Python for the temporary environment of a wheel.")
@options.path("--against", "WHEEL|ENV", "The torch that an extension is meant for [a torch wheel beside it].")
@click.option("--no-run", is_flag=True, help="Only read; install and import nothing.")
@click.option(
    "--bench", is_flag=True, help="Measure matrix products and a convolution against the GPU's nominal speed."
)
@click.option("--all-gpus", is_flag=True, help="Also copy between all GPUs, and sum over them with NCCL.")
@click.option("--stand-in", is_flag=True, help="Run a wheel for an old GPU on a newer one, through the old GPU's PTX.")
@options.path("--trial", "FILE", "With `--stand-in`: a Python program that must exit with 0.")
@options.path("--old-driver", "FILE", "With `--stand-in`: libcuda.so.1 of the old driver.")
@options.path("--jit-cache", "DIR", "Keep here what the driver compiles from PTX, for another run.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="With `--stand-in`: stop each run of the operators after this.",
)
@options.path("--share", "FILE", "Write a small report without names that you can send to the project.", written=True)
@options.output("Where to write the report [a wheel's goes beside it].")
@options.path("--junit", "FILE", "Write the checks as JUnit XML, too.", written=True)
@options.as_json
def command(
    subjects: tuple[Path, ...],
    gpus: tuple[str, ...],
    torch: str | None,
    cuda: str | None,
    plan: Path | None,
    python: str | None,
    against: Path | None,
    no_run: bool,
    bench: bool,
    all_gpus: bool,
    stand_in: bool,
    trial: Path | None,
    old_driver: Path | None,
    jit_cache: Path | None,
    time_limit: float | None,
    share: Path | None,
    output: Path | None,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Check a wheel, or an installed torch, from its file to a training step on each GPU.

    A folder means every wheel in it. Exits with 8 if a check failed, with 9 if nothing failed but something
    could not be checked.
    """
    from rekindle.core.errors import UsageError
    from rekindle.core.programs import reads_only

    if no_run:
        click.get_current_context().with_resource(reads_only())
    if stand_in:
        if share is not None:
            raise UsageError("`--share` is for runs on the card itself, not on a stand-in")
        if len(subjects) > 1:
            raise UsageError("`--stand-in` takes one wheel", hint="run it once per wheel")
        one = subjects[0] if subjects else None
        given = (trial, old_driver, jit_cache, against)
        return _stand_in(
            one, _stand_in_request(gpus, python, given, time_limit, run=not no_run), output, as_json=as_json
        )
    if trial or old_driver or time_limit:
        raise UsageError("`--trial`, `--old-driver` and `--time-limit` need `--stand-in`")
    if no_run and (bench or all_gpus):
        raise UsageError("`--no-run` cannot be combined with `--bench` or `--all-gpus`", hint="leave one of them out")
    from rekindle.core import findings
    from rekindle.inputs.torch import with_cuda
    from rekindle.wheels import tags
    from rekindle.wheels.verify import verify

    places = [Path(text) for text in tags.subjects([str(subject) for subject in subjects])]
    if len(places) > 1 and (output or junit or share):
        raise UsageError(
            "`--output`, `--junit` and `--share` go with one wheel", hint="each wheel's report is written beside it"
        )
    meant, toolkit = with_cuda(torch, cuda)
    release = (meant.wanted or meant.release) if torch else None
    built = str(toolkit) if toolkit else None
    expected = (
        verify.Expected(torch=release, cuda=built, cards=gpus, bench=bench, all_gpus=all_gpus)
        if plan is None
        else verify.expected_of(plan, bench=bench, all_gpus=all_gpus)
    )
    seen = []
    every: list[Path | None] = [*places] or [None]
    if not no_run and any(place.suffix == ".whl" for place in places):
        console.say("the wheel is installed in a new environment and its code is run, as you; `--no-run` only reads")
    for place in every:
        with console.waiting(f"checking {place or 'the installed torch'}"):
            done = verify.verify(
                place,
                expected=expected,
                python=python,
                run=not no_run,
                against=against,
                jit_cache=jit_cache.resolve() if jit_cache else None,
            )
        _keep(done, place, output, junit)
        if share is not None:
            _share(done, share)
        seen.append(done)
        if not as_json:
            console.out(("\n" if len(seen) > 1 else "") + verify.text(done))
    if as_json:
        console.out_json(seen[0] if len(seen) == 1 else verify.Verifications(verifications=tuple(seen)))
    return findings.exit_code(max((done.state for done in seen), key=lambda state: state.rank))


def _share(done: Verification, place: Path) -> None:
    from rekindle.core import own
    from rekindle.wheels.verify import signed_report

    signed_report.write_share(done, place)
    page = own.page()
    form = f"{page}/issues/new?template=card-report.yml" if page else "an issue of the project you have Rekindle from"
    console.say(f"wrote `{place}`: read it, then send it with {form}")


def _keep(done: Verification, subject: Path | None, output: Path | None, junit: Path | None) -> None:
    from rekindle.core import codec, files
    from rekindle.wheels.verify import signed_report, verify

    place = output or (verify.report_beside(subject) if subject is not None and done.kind == "wheel" else None)
    if place is not None:
        if done.kind == "wheel":
            signed_report.write(place, done)
        else:
            files.write_text(place, codec.to_json(done) + "\n")
        console.say(f"wrote `{place}`")
    if junit is not None:
        files.write_text(junit, verify.junit(done))


def _stand_in_request(
    gpus: tuple[str, ...],
    python: str | None,
    places: tuple[Path | None, ...],
    time_limit: float | None,
    *,
    run: bool,
) -> StandInRequest:
    """`places` are the trial, the old driver, the cache of what the driver compiles and an extension's torch."""
    import os

    from rekindle.core.errors import NotFound, UsageError
    from rekindle.wheels.verify.stand_in import StandInRequest

    trial, old_driver, jit_cache, against = places
    if len(gpus) > 1:
        raise UsageError("`--stand-in` takes one old card", hint="run it once per card")
    for path in (trial, old_driver, against):
        if path is not None and not (path.exists() if path is against else path.is_file()):
            raise NotFound.path(path)
    return StandInRequest(
        gpu=gpus[0] if gpus else None,
        python=python,
        against=against.resolve() if against else None,
        trial=trial.resolve() if trial else None,
        old_driver=old_driver,
        jit_cache=jit_cache.resolve() if jit_cache else None,
        processes=max(1, min(16, os.cpu_count() or 1)),
        seconds=time_limit or 1800.0,
        run=run,
    )


def _stand_in(subject: Path | None, request: StandInRequest, output: Path | None, *, as_json: bool) -> int:
    from rekindle.core import codec, files, findings
    from rekindle.wheels.verify import stand_in

    done = stand_in.stand_in(subject, request)
    if output is not None:
        files.write_text(output, codec.to_json(done) + "\n")
        console.say(f"wrote {output}")
    console.out_json(done) if as_json else console.out(stand_in.text(done))
    return findings.exit_code(done.state)
