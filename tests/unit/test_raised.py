"""`tools.raised`: what a package raises, as the last line of a log."""

from __future__ import annotations

from tools.raised import raised

SOURCE = """
def load(capability, arch):
    if capability < 8:
        raise RuntimeError(f"this kernel needs compute capability 8.0, and the card has {capability}")
    if arch is None:
        raise torch.cuda.CudaError("unsupported arch %s " % arch
                                   + "of a GPU")
    assert arch, "a GPU is needed for {}".format(arch)
    raise ValueError("the shape is wrong, as it often is")
"""


def test_every_message_of_the_field_is_found() -> None:
    assert set(raised(SOURCE)) == {
        "RuntimeError: this kernel needs compute capability 8.0, and the card has (6, 1)",
        "CudaError: unsupported arch X of a GPU",
        "AssertionError: a GPU is needed for X",
    }
    assert not list(raised("def broken(:"))
