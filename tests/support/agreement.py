"""The same question asked of every command that can answer it. What differs is a fault, whoever is right."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rekindle.audit.cards import cards_for
from rekindle.build.configure import request, tools
from rekindle.compat import library_card
from rekindle.core.version import Version
from rekindle.diagnose import facts
from rekindle.doctor.report import examine
from rekindle.knowledge.gpu.gpus import capabilities_of, find
from rekindle.machine.model import FoundCudnn, Machine, Memory, Processor
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.stack import estimates, offers, prebuilt, source_build
from rekindle.stack import plan as lock
from rekindle.stack.card import describe, serving_wheels
from rekindle.stack.driver import window_of
from rekindle.stack.from_machine import situation_of
from rekindle.stack.matrix import matrix
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish, cards_named


def capability(name: str) -> Iterator[str]:
    """`gpu`, `plan`, `audit`, `diagnose`, and what `env`, `repair`, `shelf` and `inspect` share."""
    match = find(name)
    if match.ambiguous:
        return
    answers = {
        "gpu": describe(name).compute_capability,
        "plan": cards_named([name])[0].capabilities[0],
        "audit": cards_for([name], None, None)[0][0].capability,
        "diagnose": facts.facts_from_options(gpus=[name]).gpus[0],
        "env": capabilities_of([name])[0],
    }
    if len(set(answers.values())) != 1:
        yield f"{name}: {answers}"


def wheels(card: Capability, system: str) -> Iterator[str]:
    """`gpu`, `plan --list` and the routes of `plan`, for the newest patch of every release."""
    situation = Situation(system=system, cards=(Card(name=card.sm, capabilities=(card,)),))
    told = {(row.torch, row.variant, bool(row.loses)) for row in serving_wheels(card, Platform(system, "x86_64"))}
    rows = matrix(situation, Wish()).rows
    listed = {
        (row.torch, wheel.name, bool(wheel.loses))
        for row in rows
        for wheel in row.wheels
        if wheel.route is RouteKind.OFFICIAL_WHEEL
    }
    if told != listed:
        yield f"{card} on {system}: gpu and plan --list differ in {sorted(told ^ listed)}"
    verdict = resolve(situation, Wish())
    routes = {(route.torch, bool(route.loses)) for route in verdict.routes if route.route is RouteKind.OFFICIAL_WHEEL}
    best = {torch: min(lost for each, _, lost in told if each == torch) for torch, _, _ in told}
    if routes != set(best.items()):
        yield f"{card} on {system}: gpu and plan differ in {sorted(routes ^ set(best.items()), key=str)}"


def cudnn_of(card: Capability, system: str) -> Iterator[str]:
    """What the plan of a source build names, `build` finds by the header's three numbers and by the archive's four."""
    situation = Situation(system=system, cards=(Card(name=card.sm, capabilities=(card,)),))
    for route in resolve(situation, Wish()).routes:
        if route.route is not RouteKind.SOURCE_BUILD or route.cudnn is None:
            continue
        for found in (Version(".".join(map(str, route.cudnn.parts[:3]))), route.cudnn, Version("8"), Version("8.7")):
            here = FoundCudnn(root="/x", version=found)
            machine = Machine(os=system, arch="x86_64", cudnns=(here,))
            planned = source_build.cudnn_is_here(route.cudnn, situation_of(machine))
            wanted = request.BuildFile(torch=route.torch, cudnn=route.cudnn)
            built = request.fitting_cudnns(wanted, machine) != []
            if planned != built or planned != library_card.same_release(found, route.cudnn):
                yield f"{card}, torch {route.torch}: cuDNN {found} for {route.cudnn}: plan {planned}, build {built}"


def profile(flags: tuple[str, ...]) -> Iterator[str]:
    """`doctor` and `plan` on one processor."""
    machine = Machine(os="linux", arch="x86_64", processor=Processor(flags=flags, flags_known=True, cores=8))
    said = next((each.fix.text for each in examine(machine, only=["cpu.instructions"]) if each.fix), None)
    card = (Card(name="Tesla K40c", capabilities=(Capability(3, 5),)),)
    situation = msgspec.structs.replace(situation_of(machine), cards=card)
    planned = lock.plan_of(resolve(situation, Wish())).profile
    if said is not None and f"`{planned}`" not in said:
        yield f"{flags}: plan says {planned}, doctor says {said}"


def job_count(cores: int, gigabytes: int) -> Iterator[str]:
    """`build`, its script, and the estimate of `plan`."""
    machine = Machine(
        os="linux",
        arch="x86_64",
        memory=Memory(physical=gigabytes << 30),
        processor=Processor(cores=cores, flags_known=True),
    )
    built = tools.jobs_for(machine, cuda=True)
    planned = estimates.jobs(situation_of(machine))
    if built != planned:
        yield f"{cores} cores, {gigabytes} GB: build {built}, plan {planned}"


def release(version: str, card: Capability, system: str) -> Iterator[str]:
    """Each patch release asked for by name: its wheels are those of the official list, whole or in part."""
    situation = Situation(system=system, cards=(Card(name=card.sm, capabilities=(card,)),))
    verdict = resolve(situation, Wish(torch=version))
    routes = {route.torch for route in verdict.routes if route.route is RouteKind.OFFICIAL_WHEEL}
    window = window_of(situation)
    able = {
        offer.torch
        for offer in offers.official_of(version, Platform(system, "x86_64"))
        if prebuilt.consider(offer, situation, Wish(), window)[0] is not None
    }
    if routes != able:
        yield f"torch {version}, {card} on {system}: {routes} and {able}"
