"""What a person sees of a build: the last lines, of a real one, a dry run or a tidying."""

from __future__ import annotations

from rekindle.build import overview
from rekindle.build.governor import governor
from rekindle.build.run import tidy
from rekindle.build.run.build import BuildReport


def text(report: BuildReport) -> str:
    if report.tidied is not None:
        return tidy.text(report.tidied)
    planned = [step.name for step in report.steps if step.state == "planned"]
    lines = [overview.text(report.overview), f"steps      {', '.join(planned)}"] if planned and report.overview else []
    lines.append(f"wheel   {report.wheel}" if report.wheel else f"version {report.version}")
    if report.cache and report.cache.rate is not None:
        lines.append(f"cache   {report.cache.hits} hits, {report.cache.misses} misses")
    used = governor.summary(report.governor) if report.governor else None
    if used:
        lines.append(f"memory  {used}")
    if report.record:
        lines.append(f"record  {report.record}")
    lines.append(f"folder  {report.folder}")
    if report.wheel and not planned:
        lines.append("`rekindle build --tidy` with the same plan frees what the finished build no longer needs")
    return "\n".join(lines)
