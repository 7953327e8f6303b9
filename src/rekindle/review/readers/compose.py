"""docker-compose: the image of each service, what it runs, and the Dockerfile that it builds with its arguments."""

from __future__ import annotations

import msgspec

from rekindle.review.document import Dialect
from rekindle.review.readers.dockerfile import read_dockerfile
from rekindle.review.readers.recorder import Recorder
from rekindle.review.readers.shell import read_shell
from rekindle.review.readers.yaml_nodes import Node, YamlReader, composed
from rekindle.review.trace import Image, Trace, WithoutCards


def read_compose(trace: Trace, text: str) -> None:
    root = composed(trace, text)
    reader = _ComposeReader(trace, text)
    for name, node in reader.mapping(reader.mapping(root).get("services")).items():
        reader.service(name, node)


class _ComposeReader(YamlReader):
    def service(self, name: str, node: Node) -> None:
        service = self.mapping(node)
        scope = self.trace.open(self.trace.scopes[0], f"job {name}")
        first = self.trace.order
        recorder = Recorder(self.trace, Dialect.SHELL, scope)
        self._variables(service.get("environment"), recorder)
        build = service.get("build")
        if build is not None:
            self._build(build)
        image = self.text(service.get("image"))
        if image and build is None:
            line = service["image"].start_mark.line + 1
            self.trace.images.append(
                Image(name=image, line=line, order=self.trace.tick(), scope=scope.number, known="$" not in image)
            )
        for part in ("entrypoint", "command"):
            found = service.get(part)
            words = self.listed(found)
            body = words[-1] if words[:2] in (["bash", "-c"], ["sh", "-c"], ["/bin/bash", "-c"]) else " ".join(words)
            body = self.text(found) or body
            if body and found is not None:
                read_shell(self.trace, body + "\n", first=found.start_mark.line + 1, recorder=recorder)
        if not self._asks_for_cards(service):
            line = node.start_mark.line  # that of its name, one above its first key
            self.trace.without_cards.append(WithoutCards(name, line, range(first, self.trace.order + 1)))

    def _asks_for_cards(self, service: dict[str, Node]) -> bool:
        """`gpus`, NVIDIA's runtime, reserved devices, or devices by CDI; what it takes over from elsewhere may, too."""
        if service.keys() & {"gpus", "extends", "privileged"} or self.text(service.get("runtime")) == "nvidia":
            return True
        resources = self.mapping(self.mapping(service.get("deploy")).get("resources"))
        reserved = self.mapping(resources.get("reservations"))
        return bool(reserved.keys() & {"devices", "generic_resources"}) or any(
            "nvidia" in each for each in self.listed(service.get("devices"))
        )

    def _variables(self, node: Node | None, recorder: Recorder) -> None:
        pairs = [(key, self.text(value) or "", value) for key, value in self.mapping(node).items()]
        pairs += [(*each.value.partition("=")[::2], each) for each in self.sequence(node) if each.id == "scalar"]
        for key, value, at in pairs:
            line = at.start_mark.line + 1
            recorder.set(key, value, line, known="$" not in value)

    def _build(self, node: Node) -> None:
        """The Dockerfile beside it, as if it stood at the line of `build`."""
        given = self.mapping(node)
        folder = self.text(node) or self.text(given.get("context")) or "."
        args = given.get("args")
        pairs = {key: self.text(value) or "" for key, value in self.mapping(args).items()}
        pairs |= dict(word.partition("=")[::2] for word in self.listed(args) if "=" in word)
        inline = given.get("dockerfile_inline")
        line = node.start_mark.line + 1
        name = self.text(given.get("dockerfile")) or "Dockerfile"
        text = self.text(inline)
        if text is None and self.trace.beside is not None:
            other = self.trace.beside.text(f"{folder}/{name}", None) or self.trace.beside.text(name, None)
            text = other.text if other is not None else None
        if text is None:
            self.trace.slip("other-file", line, name=name[:80])
            return
        images = len(self.trace.images)
        self.trace.build_arguments, self.trace.at = pairs, line
        self.trace.opened.setdefault(line, name)
        read_dockerfile(self.trace, text)
        self.trace.build_arguments, self.trace.at = {}, None
        for at in range(images, len(self.trace.images)):
            self.trace.images[at] = msgspec.structs.replace(self.trace.images[at], line=line)
