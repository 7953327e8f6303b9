# What `ask_torch.py` computes inside the environment that is verified, and what it holds the results against: nothing
# but the standard library and torch, and nothing newer than Python 3.7.
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Wrong(Exception):
    """It ran, and the result is not right."""


class NotHere(Exception):
    """It cannot be checked here; that is no pass."""


def close(torch: Any, got: Any, wanted: Any, tolerance: float, what: str) -> str:
    """The largest error, relative to the largest value wanted."""
    got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
    if not bool(torch.isfinite(got).all()):
        raise Wrong(f"{what} gave values that are not finite")
    error = float((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
    if error > tolerance:
        raise Wrong(f"{what} is off by {error:.1e} of its largest value; {tolerance:.0e} is allowed")
    return f"{what} agrees with the CPU to {max(error, 1e-17):.0e}"


def cpu(torch: Any) -> str:
    a = torch.randn(64, 64, dtype=torch.float64)
    x = torch.linalg.solve(a, torch.eye(64, dtype=torch.float64)) if hasattr(torch, "linalg") else a.inverse()
    message = close(torch, a @ x, torch.eye(64, dtype=torch.float64), 1e-8, "solving a linear system")
    complex_dot(torch)
    w = torch.ones(3, requires_grad=True)
    (w * w).sum().backward()
    if w.grad.tolist() != [2.0, 2.0, 2.0]:
        raise Wrong(f"the gradient of w*w is {w.grad.tolist()}")
    return message.replace("agrees with the CPU", "is right on the CPU") + ", gradients are right"


def complex_dot(torch: Any) -> None:
    """OpenBLAS hands complex numbers back as GNU Fortran does; a torch that was built for MKL's way reads 0."""
    vector = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64)
    try:
        got = complex(torch.dot(vector, vector))
    except RuntimeError:
        return  # torch before 1.7 has no such product
    if abs(got - (5 - 2j)) > 1e-4:
        raise Wrong(
            f"the dot product of two complex vectors is {got}, not (5-2j): it was built without BLAS_USE_CBLAS_DOT, "
            "which OpenBLAS needs; `rekindle build` sets it"
        )


def numpy_bridge(torch: Any) -> str:
    try:
        import numpy
    except ImportError:
        raise NotHere("NumPy is not in this environment") from None
    array = torch.arange(6).reshape(2, 3).numpy()
    if int(torch.from_numpy(numpy.ascontiguousarray(array)).sum()) != 15:
        raise Wrong(f"numbers change on the way to NumPy {numpy.__version__} and back")
    return f"tensors and arrays of NumPy {numpy.__version__} share memory"


def arch_list(torch: Any, device: Any) -> str:
    have = torch.cuda.get_arch_list()
    major, minor = torch.cuda.get_device_capability(device)
    name = torch.cuda.get_device_name(device)
    native = []
    compiled = []
    for arch in have:
        number = "".join(letter for letter in arch if letter.isdigit())
        suffix = arch[-1] if arch[-1] in "af" else ""
        there = (int(number[:-1]), int(number[-1])) if number else (0, 0)
        exact = there == (major, minor)
        if arch.startswith("sm_") and there[0] == major and there[1] <= minor and (exact or suffix != "a"):
            native.append(arch)
        if arch.startswith("compute_") and not suffix and there <= (major, minor):
            compiled.append(arch)
    if native:
        return f"{name} ({major}.{minor}) is served by {native[-1]} of {' '.join(have)}"
    if compiled:
        return (
            f"{name} ({major}.{minor}) has no code of its own in {' '.join(have)}: the driver compiles {compiled[-1]}"
        )
    raise Wrong(f"{name} ({major}.{minor}) is served by none of {' '.join(have) or 'no architecture'}")


def allocation(torch: Any, device: Any) -> str:
    free, total = torch.cuda.mem_get_info(device) if hasattr(torch.cuda, "mem_get_info") else (0, 0)
    size = min(256 << 20, free // 4) if free else 64 << 20
    block = torch.empty(size, dtype=torch.uint8, device=device)
    block.fill_(7)
    if int(block[-1]) != 7 or int(block[0]) != 7:
        raise Wrong("memory does not hold what was written to it")
    return f"{size >> 20} MB were allocated and filled, {free >> 20} of {total >> 20} MB were free"


def first_launch(torch: Any, device: Any) -> str:
    x = torch.empty(1 << 20, device=device)
    torch.cuda.synchronize(device)
    begun = time.perf_counter()
    x.fill_(1.0)
    y = torch.nn.functional.gelu(x * 2)
    torch.cuda.synchronize(device)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    x.fill_(1.0)
    y = torch.nn.functional.gelu(x * 2)
    torch.cuda.synchronize(device)
    second = time.perf_counter() - begun
    if abs(float(y[0]) - 1.9545) > 1e-3:
        raise Wrong(f"the first kernels gave {float(y[0])!r}, not 1.9545")
    return f"the first kernels took {first * 1e3:.1f} ms, the same again {second * 1e3:.2f} ms"


def matmul(torch: Any, device: Any, dtype: Any, tolerance: float, tf32: bool = False) -> str:
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    a, b = a.to(dtype), b.to(dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        got = a.to(device) @ b.to(device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return close(torch, got, a.double() @ b.double(), tolerance, "a 512x512 product")


def matmul_fp32(torch: Any, device: Any) -> str:
    return matmul(torch, device, torch.float32, 1e-5)


def matmul_fp16(torch: Any, device: Any) -> str:
    if torch.cuda.get_device_capability(device) < (5, 3):
        return "this card has no half-precision arithmetic; " + matmul(torch, device, torch.float16, 5e-3)
    return matmul(torch, device, torch.float16, 5e-3)


def matmul_bf16(torch: Any, device: Any) -> str:
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "this card has no bfloat16 units: nothing to check"
    return matmul(torch, device, torch.bfloat16, 3e-2)


def matmul_tf32(torch: Any, device: Any) -> str:
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "this card has no TF32 units: nothing to check"
    return matmul(torch, device, torch.float32, 5e-3, tf32=True)


def cublas(torch: Any, device: Any) -> str:
    a, b, v = torch.randn(16, 96, 64).double(), torch.randn(16, 64, 80).double(), torch.randn(64).double()
    close(torch, torch.bmm(a.to(device), b.to(device)), torch.bmm(a, b), 1e-12, "a batched product")
    close(torch, torch.mv(a[0].to(device), v.to(device)), torch.mv(a[0], v), 1e-12, "a product with a vector")
    bias = torch.randn(80)
    layer = torch.addmm(bias.to(device), a[0].float().to(device), b[0].float().to(device))
    close(torch, layer, torch.addmm(bias, a[0].float(), b[0].float()), 1e-5, "addmm")
    return "batched, vector and affine products agree with the CPU"


def cudnn_conv(torch: Any, device: Any) -> str:
    cudnn = torch.backends.cudnn
    config = torch.__config__.show() if hasattr(torch, "__config__") else ""
    if not cudnn.is_available() and "USE_CUDNN=0" not in config and "USE_CUDNN=OFF" not in config:
        raise Wrong("torch was built with cuDNN, and cannot load it")
    before = cudnn.allow_tf32
    cudnn.allow_tf32 = False
    try:
        x, w = torch.randn(4, 8, 32, 32), torch.randn(16, 8, 3, 3)
        results = []
        for place in (torch.device("cpu"), device):
            # Copies: on the CPU `to` gives the same tensor back, and the GPU's would then hang on it.
            xi, wi = (tensor.to(place, copy=True).requires_grad_() for tensor in (x, w))
            out = torch.nn.functional.conv2d(xi, wi, padding=1, stride=2)
            out.square().sum().backward()
            results.append((out, xi.grad, wi.grad))
    finally:
        cudnn.allow_tf32 = before
    for what, wanted, got in zip(("convolution", "its gradient", "its weights' gradient"), *results):  # noqa: B905
        close(torch, got, wanted, 1e-4, what)
    number = cudnn.version() or 0
    # 91900 is 9.19.0, 8902 is 8.9.2.
    scale = 10000 if number >= 90000 else 1000
    name = f"{number // scale}.{number % scale // 100}.{number % 100}"
    which = f"cuDNN {name}" if cudnn.is_available() else "without cuDNN, as it was built"
    return f"{which}: convolution forward and backward agree with the CPU"


def fft(torch: Any, device: Any) -> str:
    x = torch.randn(8, 1000).double()
    got = torch.fft.ifft(torch.fft.fft(x.to(device))).real
    close(torch, torch.fft.rfft(x.to(device)).abs(), torch.fft.rfft(x).abs(), 1e-10, "rfft")
    return close(torch, got, x, 1e-12, "fft and back")


def linalg(torch: Any, device: Any, svd: bool = True) -> str:
    a = torch.randn(48, 48).double()
    spd = a @ a.t() + 48 * torch.eye(48).double()
    gpu = spd.to(device)
    factor = torch.linalg.cholesky(gpu)
    close(torch, factor @ factor.transpose(-1, -2), spd, 1e-10, "Cholesky")
    if svd:
        u, s, v = torch.linalg.svd(gpu)
        close(torch, (u * s) @ v, spd, 1e-10, "SVD")
    values, _ = torch.linalg.eigh(gpu)
    close(torch, values, torch.linalg.eigvalsh(spd), 1e-10, "eigenvalues")
    close(torch, torch.linalg.solve(gpu, gpu), torch.eye(48).double(), 1e-10, "solve")
    return "Cholesky, SVD, eigenvalues and solve (cuSOLVER's path) agree with the CPU"


def magma(torch: Any, device: Any) -> str:
    if not getattr(torch.cuda, "has_magma", False):
        return "this build has no MAGMA: cuSOLVER does its work"
    choose = getattr(torch.backends.cuda, "preferred_linalg_library", None)
    if choose is None:
        raise NotHere("this release cannot be told to use MAGMA")
    before = choose()
    try:
        choose("magma")
    except Exception as error:
        raise NotHere(f"MAGMA cannot be chosen: {error}") from None
    try:
        # Told to use MAGMA, torch 2.11.0 sends an SVD to cuSOLVER with arguments that it refuses (seen on an H200).
        linalg(torch, device, svd=False)
    finally:
        choose(before)
    return "Cholesky, eigenvalues and solve by MAGMA agree with the CPU"


def random(torch: Any, device: Any) -> str:
    def draw() -> Any:
        torch.cuda.manual_seed_all(1234)
        return torch.randn(1 << 20, device=device)

    one, two = draw(), draw()
    if not torch.equal(one, two):
        raise Wrong("the same seed gives other numbers")
    mean, spread = float(one.mean()), float(one.std())
    if abs(mean) > 0.01 or abs(spread - 1) > 0.01:
        raise Wrong(f"normal numbers have mean {mean:.3f} and spread {spread:.3f}")
    return f"a million normal numbers: mean {mean:.4f}, spread {spread:.4f}, the same for the same seed"


def streams(torch: Any, device: Any) -> str:
    side = torch.cuda.Stream(device)
    begun, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1 << 20, device=device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        begun.record()
        for _ in range(50):
            x = x + 1
        done.record()
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    if float(x.min()) != 51.0 or float(x.max()) != 51.0:
        raise Wrong("work on a second stream was lost")
    return f"fifty additions on a second stream took {begun.elapsed_time(done):.2f} ms"


def training(torch: Any, device: Any) -> str:
    losses = []
    for place in (torch.device("cpu"), device):
        torch.manual_seed(7)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 14 * 14, 10),
        )
        x, y = torch.randn(32, 1, 14, 14), torch.randint(0, 10, (32,))
        model, x, y = model.to(place), x.to(place), y.to(place)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        run_ = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            run_.append(float(loss))
        losses.append(run_)
    difference = max(abs(one - two) for one, two in zip(*losses))  # noqa: B905
    if not losses[1][-1] < losses[1][0] or difference > 1e-2:
        raise Wrong(f"five steps of training give {losses[1]}, on the CPU {losses[0]}")
    first, last = losses[1][0], losses[1][-1]
    return f"five steps of training: loss {first:.4f} to {last:.4f}, within {max(difference, 1e-17):.0e} of the CPU"


def bench_product(torch: Any, device: Any, dtype: Any, nominal: float, kind: str) -> str:
    free = torch.cuda.mem_get_info(device)[0] if hasattr(torch.cuda, "mem_get_info") else 1 << 30
    size = 8192 if free > 4 << 30 else 4096 if free > 1 << 30 else 2048
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    return share(f"{size}x{size} products in {kind}", rate(torch, lambda: a @ b, 2.0 * size**3), nominal)


def bench_convolution(torch: Any, device: Any, nominal: float) -> str:
    x = torch.randn(32, 128, 56, 56, device=device)
    w = torch.randn(128, 128, 3, 3, device=device)
    work = 2.0 * 32 * 128 * 56 * 56 * 128 * 9
    done = rate(torch, lambda: torch.nn.functional.conv2d(x, w, padding=1), work)
    return share("3x3 convolutions of 32x128x56x56 in single precision", done, nominal)


def rate(torch: Any, work: Callable[[], Any], operations: float) -> float:
    """TFLOPS over about half a second, the best of three: other programs and clocks can only slow it down."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    torch.cuda.synchronize()
    times = max(1, min(2000, int(0.5 / max(time.perf_counter() - begun, 1e-6))))
    best = 0.0
    for _ in range(3):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(times):
            work()
        last.record()
        torch.cuda.synchronize()
        best = max(best, operations * times / (first.elapsed_time(last) / 1e3) / 1e12)
    return best


def share(what: str, done: float, nominal: float) -> str:
    if not nominal:
        return f"{what}: {done:.2f} TFLOPS; the card's nominal rate is not known"
    text = f"{what}: {done:.2f} TFLOPS, {100 * done / nominal:.0f} % of the card's nominal {nominal:.2f}"
    if done < 0.1 * nominal:
        raise Wrong(text + "; less than a tenth: it is not the card that does the work, or it is throttled")
    return text


def peer_copy(torch: Any, count: int) -> str:
    direct = []
    for one in range(count):
        for two in range(count):
            if one == two:
                continue
            x = torch.arange(1 << 20, device=f"cuda:{one}", dtype=torch.float32)
            y = x.to(f"cuda:{two}")
            torch.cuda.synchronize(one)
            torch.cuda.synchronize(two)
            if not torch.equal(x.cpu(), y.cpu()):
                raise Wrong(f"a copy from card {one} to card {two} arrives changed")
            if torch.cuda.can_device_access_peer(one, two):
                direct.append((one, two))
    pairs = count * (count - 1)
    return f"{pairs} copies between {count} cards arrive whole, {len(direct)} of them card to card"


def all_reduce(torch: Any, count: int) -> str:
    nccl = torch.cuda.nccl
    inputs = [torch.full((1 << 20,), float(index + 1), device=f"cuda:{index}") for index in range(count)]
    if not nccl.is_available(inputs):
        raise NotHere("this torch was built without NCCL")
    nccl.all_reduce(inputs)
    for index in range(count):
        torch.cuda.synchronize(index)
    wanted = count * (count + 1) / 2
    wrong = [
        index for index, tensor in enumerate(inputs) if float(tensor.min()) != wanted or float(tensor.max()) != wanted
    ]
    if wrong:
        raise Wrong(f"the sum over {count} cards is wrong on card {wrong[0]}")
    return f"NCCL's sum over {count} cards is right on each"


CHECKS = [
    ("arch-list", arch_list),
    ("launch", first_launch),
    ("allocation", allocation),
    ("matmul-fp32", matmul_fp32),
    ("matmul-fp16", matmul_fp16),
    ("matmul-bf16", matmul_bf16),
    ("matmul-tf32", matmul_tf32),
    ("cublas", cublas),
    ("cudnn", cudnn_conv),
    ("fft", fft),
    ("linalg", linalg),
    ("magma", magma),
    ("random", random),
    ("streams", streams),
    ("training", training),
]
