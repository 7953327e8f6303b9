"""A broad look at a torch on the CPU, with nothing around it but NumPy: `python tools/cpu_smoke.py`.

Run by the interpreter that has the torch, in a clean environment or a bare system. Exit code 1 when a check fails.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

_DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.complex64)


def matmul_is_numpys() -> bool:
    a, b = torch.randn(64, 48), torch.randn(48, 32)
    return np.allclose((a @ b).numpy(), a.numpy() @ b.numpy(), atol=1e-5)


def every_dtype_adds() -> bool:
    return all(torch.ones(3, dtype=dtype).sum().item() == 3 for dtype in _DTYPES)


def gradients_are_right() -> bool:
    x = torch.randn(5, requires_grad=True)
    (x.sin() * x.exp()).sum().backward()
    y = torch.randn(4, dtype=torch.double, requires_grad=True)
    by_hand = torch.allclose(x.grad, (x.cos() + x.sin()) * x.exp(), atol=1e-5)
    return by_hand and torch.autograd.gradcheck(lambda t: torch.tanh(t).pow(2), y)


def convolution_is_a_product() -> bool:
    image, layer = torch.randn(2, 3, 8, 8), nn.Conv2d(3, 4, 3, padding=1)
    patches = nn.functional.unfold(image, 3, padding=1).transpose(1, 2)
    wanted = patches @ layer.weight.view(4, -1).t() + layer.bias
    return torch.allclose(layer(image).flatten(2).transpose(1, 2), wanted, atol=1e-4)


def lapack_works() -> bool:
    u, _, _ = torch.linalg.svd(torch.randn(6, 4, dtype=torch.double), full_matrices=False)
    root = torch.randn(8, 8, dtype=torch.double)
    unit = torch.eye(8, dtype=torch.double)
    matrix = root @ root.t() + 8 * unit
    lower = torch.linalg.cholesky(matrix)
    return (
        torch.allclose(u.t() @ u, unit[:4, :4])
        and torch.allclose(matrix @ torch.linalg.solve(matrix, unit), unit)
        and torch.allclose(lower @ lower.t(), matrix)
        and bool(torch.linalg.eigvalsh(matrix).min() > 0)
    )


def fft_is_numpys() -> bool:
    signal = torch.randn(16)
    return np.allclose(torch.fft.fft(signal).numpy(), np.fft.fft(signal.numpy()), atol=1e-5)


def sorting_works() -> bool:
    values = torch.randn(16)
    same = torch.equal(values.sort().values, values.topk(16, largest=False).values)
    return same and torch.unique(torch.tensor([3, 1, 3])).tolist() == [1, 3]


def sparse_works() -> bool:
    return torch.allclose(torch.eye(4).to_sparse() @ torch.ones(4, 2), torch.ones(4, 2))


def training_lowers_the_loss() -> bool:
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    data = torch.rand(256, 2)
    wanted = (data[:, :1] - data[:, 1:]).abs()
    losses = []
    for _ in range(200):
        loss = (net(data) - wanted).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses[-1] < losses[0] / 10


def what_is_saved_is_loaded() -> bool:
    state = nn.Linear(4, 4).state_dict()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return all(torch.equal(value, state[name]) for name, value in torch.load(buffer).items())


def torchscript_runs() -> bool:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return bool((scripted(torch.ones(1, 4)) >= 0).all())


def recurrence_and_attention_have_their_shapes() -> bool:
    out, _ = nn.LSTM(4, 8, 2)(torch.randn(5, 3, 4))
    attended, _ = nn.MultiheadAttention(8, 2)(*[torch.randn(5, 1, 8)] * 3)
    return out.shape == (5, 3, 8) and attended.shape == (5, 1, 8)


def numpy_both_ways() -> bool:
    return torch.from_numpy(np.arange(3)).tolist() == [0, 1, 2] and torch.arange(3).numpy().tolist() == [0, 1, 2]


def a_worker_hands_over_tensors() -> bool:
    loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=4, num_workers=1)
    return sum(batch[0].numel() for batch in loader) == 10


def random_numbers_are_spread() -> bool:
    return abs(torch.distributions.Normal(0, 1).sample((20000,)).std().item() - 1) < 0.05


def quantised_tensors_come_back() -> bool:
    values = torch.tensor([1.0, 2.0])
    return torch.allclose(torch.quantize_per_tensor(values, 0.1, 0, torch.quint8).dequantize(), values, atol=0.05)


CHECKS: tuple[Callable[[], bool], ...] = (
    matmul_is_numpys, every_dtype_adds, gradients_are_right, convolution_is_a_product, lapack_works, fft_is_numpys,
    sorting_works, sparse_works, training_lowers_the_loss, what_is_saved_is_loaded, torchscript_runs,
    recurrence_and_attention_have_their_shapes, numpy_both_ways, a_worker_hands_over_tensors,
    random_numbers_are_spread, quantised_tensors_come_back,
)  # fmt: skip


def main() -> int:
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    right = [check() for check in CHECKS]
    for check, ok in zip(CHECKS, right, strict=True):
        print("PASS" if ok else "FAIL", check.__name__.replace("_", " "))
    print(f"{sum(right)} of {len(right)}")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
