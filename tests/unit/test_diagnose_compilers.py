"""Fixes for compilers, toolkits, CMake and the link name the thing itself: version, switch, folder, package."""

from __future__ import annotations

import pytest

from rekindle.diagnose.diagnosis import diagnose_text

pytestmark = pytest.mark.usefixtures("as_on_linux")

GLIBC = (
    '/usr/include/bits/mathcalls.h(79): error: exception specification is incompatible with that of previous function "'
)
UNSET = (
    "CMake Error: The following variables are used in this project, but they are set to NOTFOUND.\n"
    "Please set them or make sure they are set and tested correctly in the CMake files:\n"
)


def told(log: str) -> str:
    """The first cause, its fix and its commands, as one text."""
    found = diagnose_text(log.strip("\n") + "\n").causes[0]
    return "\n".join((found.label, found.whole.text, *found.whole.commands))


@pytest.mark.parametrize(
    ("log", "says"),
    [
        # The GCC of the path that nvcc cannot read, and the CUDA that can.
        (
            "/usr/include/c++/11/bits/std_function.h:435:145: error: parameter packs not expanded with '...':",
            ("gcc_too_new_for_cuda", "CXX=g++-10", "CUDA 11.6 or newer"),
        ),
        (
            '/usr/local/cuda-12.1/bin\n/usr/include/c++/13/cmath(47): error: identifier "x" is undefined',
            ("gcc_too_new_for_cuda", "CXX=g++-12", "CUDA 12.4 or newer"),
        ),
        (
            '/usr/include/stdlib.h(141): error: identifier "_Float32" is undefined',
            ("gcc_too_new_for_cuda", "headers of GCC 13", "CUDAHOSTCXX=g++-12"),
        ),
        (
            "#error -- unsupported GNU version! gcc versions later than 13 are not supported!",
            ("CXX=g++-13", "-ccbin g++-13", "update-alternatives"),
        ),
        # CUDA 12.9 has the fault too; 13.0 has mended one half of it.
        (
            GLIBC + 'cospi" (declared at line 2601)',
            ("glibc_too_new_for_cuda", "CUDA 13.0", "noexcept (true)", "sinpif?"),
        ),
        (GLIBC + 'rsqrt" (declared at line 629)', ("CUDA 13.0 still lacks it", "(rsqrtf?)")),
        (
            "cl : Command line error D8021 : invalid numeric argument '/Wno-cpp'",
            ("compiler_option_unknown", "`/Wno-cpp` is a switch of gcc", "extra_compile_args"),
        ),
        ("nvcc fatal   : Unknown option '-threads'", ("`-threads`", "nvcc's flags")),
        ("nvcc fatal   : redefinition of argument 'std'", ("`std` is given to nvcc twice",)),
        ("gcc: error: unrecognized command line option '-std=c++14'", ("does not know C++14", "GCC 5 or newer")),
        ("nvcc fatal   : Value 'c++17' is not defined for option 'std'", ("C++17", "CUDA 11.0 or newer")),
        (
            "C:\\libtorch\\include\\c10\\util\\C++17.h(303): error C2872: 'std': ambiguous symbol",
            ("std_ambiguous_msvc", "CMAKE_CXX_STANDARD=14"),
        ),
        (
            "C:\\work>nvcc hello.cu\nnvcc error   : 'cudafe++' died with status 0xC0000005 (ACCESS_VIOLATION)",
            ("compiler_crash", "x64 Native Tools"),
        ),
    ],
)
def test_a_host_compiler_is_named(log: str, says: tuple[str, ...]) -> None:
    text = told(log)
    for word in says:
        assert word in text


VS = r"C:\Program Files\Microsoft Visual Studio\2022\BuildTools"


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            "-- Building for: Visual Studio 16 2019\n  No CUDA toolset found.",
            ("v160\\BuildCustomizations", "Visual Studio 2019"),
        ),
        (
            "-- The C compiler identification is MSVC 19.44.35211.0\n  No CUDA toolset found.",
            ("v170\\BuildCustomizations", "Visual Studio 2022"),
        ),
        (
            rf"{VS}\VC\Tools\MSVC\14.44.35207\bin\HostX64\x64\cl.exe" + "\n  No CUDA toolset found.",
            (rf'"{VS}\MSBuild\Microsoft\VC\v170\BuildCustomizations"',),
        ),
        (
            rf"-IC: {VS}\VC\Tools\MSVC\14.44.35207\include" + "\nnvcc fatal   : Cannot find compiler 'cl.exe' in PATH",
            ("cl_not_on_path", rf'call "{VS}\VC\Auxiliary\Build\vcvars64.bat"'),
        ),
        (
            "The detected CUDA version (12.2) mismatches the version that was used to compile\nPyTorch (11.3).",
            ("cuda_torch_version_mismatch", "toolkit 11.3", "keep the toolkit 12.2", "`cu121`"),
        ),
        (
            (
                "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda-9.0:/usr/local/cuda-8.0'\n"
                "/usr/bin/ld: cannot find -lcudart\ncollect2: error: ld returned 1 exit status"
            ),
            ("cuda_home_unset", "export CUDA_HOME=/usr/local/cuda-9.0"),
        ),
        (
            (
                "x.py:1: UserWarning: flash_attn was requested, but nvcc was not found.  Are you sure\n"
                "OSError: CUDA_HOME environment variable is not set."
            ),
            ("a ready-made wheel of `flash-attn`",),
        ),
        ("/usr/bin/ld: cannot find -lCUDA_cublas_LIBRARY-NOTFOUND", ("-DCUDA_cublas_LIBRARY=",)),
        (
            'a.cu(45): error: identifier "CUSPARSE_MV_ALG_DEFAULT" is undefined',
            ("cuda_api_removed", "CUDA 11.8, the last"),
        ),
        (
            "a.cpp:4:3: error: 'csrsv2Info_t' was not declared in this scope",
            ("cuda_api_removed", "CUDA 11.8, the last"),
        ),
        ('a.cu(45): error: identifier "cudaThreadSynchronize" is undefined', ("CUDA 12.9, the last",)),
        ('a.cu(45): error: identifier "__shfl_down" is undefined', ("`__shfl_down_sync`",)),
        (
            'a.cu(277): error: class "cudaDeviceProp" has no member "maxBlocksPerMultiProcessor"',
            ("cuda_toolkit_too_old", "CUDA 11.0 or newer"),
        ),
        ('a.cu(2): error: class "cudaDeviceProp" has no member "clusterLaunch"', ("cuda_toolkit_too_old", "CUDA 12")),
        (
            '/usr/local/cuda/include/cub/util_type.cuh(72): error: class template "cub::If" has already been defined',
            ("cub_thrust_conflict", "CUDA 10.2"),
        ),
    ],
)
def test_a_toolkit_is_named(log: str, says: tuple[str, ...]) -> None:
    text = told(log)
    for word in says:
        assert word in text


TORCH_CMAKE = 'Could not find a package configuration file provided by "Torch" with any of'


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            'a.obj : error LNK2001: unresolved external symbol "long * __cdecl at::Tensor::data_ptr<long>(void)"',
            ("int64_t",),
        ),
        (
            'a.obj : error LNK2019: unresolved external symbol "void c10::detail::torchInternalAssertFail(char)"',
            ("`c10.lib`",),
        ),
        (
            "a.cpp:(.text+0x1b3): undefined reference to `c10::Error::Error(std::__cxx11::basic_string<char>)'",
            ("-D_GLIBCXX_USE_CXX11_ABI=0",),
        ),
        (
            "a.cpp:(.text+0x30e): undefined reference to `c10::Error::Error(c10::SourceLocation, std::string const&)'",
            ("-D_GLIBCXX_USE_CXX11_ABI=1",),
        ),
        ("LINK : fatal error LNK1181: cannot open input file 'm.lib'", ("`libraries=[...]`",)),
        (
            "LINK : fatal error LNK1181: cannot open input file 'm.lib'\nerror: command 'link.exe' failed",
            ("`libraries=[...]`",),
        ),
        (TORCH_CMAKE, ("absolute path", "Torch_DIR")),
        (f"/usr/bin/cmake\n{TORCH_CMAKE}", ("torch.utils.cmake_prefix_path",)),
        (
            '/usr/src\nCould not find a package configuration file provided by "pybind11" with any of',
            ("sudo apt install pybind11-dev", "pybind11_DIR"),
        ),
        ("/usr/src/a.h:66:11: error: 'uint8_t' does not name a type", ("#include <cstdint>", "-include cstdint")),
        ("CMake 4.1 or higher is required.  You are running version 3.31.2", ('pip install "cmake>=4.1"',)),
    ],
)
def test_a_source_or_a_link_is_named(log: str, says: tuple[str, ...]) -> None:
    text = told(log)
    for word in says:
        assert word in text


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("a.obj : error LNK2038: mismatch detected for 'RuntimeLibrary': value 'MD'", ("--config Release",)),
        ("error MSB8020: The build tools for v143 (Platform Toolset = 'v143') cannot be found.", ("toolset v143",)),
        ("error MSB8036: The Windows SDK version 10.0.19041.0 was not found.", ("SDK 10.0.19041.0",)),
        ("LINK : fatal error LNK1158: cannot run 'rc.exe'", ("Windows Kits",)),
        ('"error STL1002: Unexpected compiler version, expected CUDA 13.2 or newer."', ("-vcvars_ver=14.44",)),
        (
            (
                "C:/MSVC/14.44.35207/include\\y.h\nC:\\CUDA\\v11.8\\crt/host_config.h(1): fatal error C1189: #error: --"
                " unsupported Microsoft Visual Studio version! Only the versions between 2017 and 2022 (inclusive)"
            ),
            ("-vcvars_ver=14.39", "CUDA 12.4 or newer, which takes the toolset 14.44"),
        ),
        (
            (
                "Microsoft (R) C/C++ Optimizing Compiler Version 19.40.33811 for x64\nC:\\CUDA\\v12.1\\bin\\nvcc.EXE\n"
                "nvcc fatal   : Host compiler targets unsupported OS."
            ),
            ("The compiler is MSVC", "-vcvars_ver=14.39"),
        ),
        ("gcc: fatal error: cannot execute 'cc1plus': execvp: No such file", ("apt install build-essential",)),
        ("/bin/sh: 1: g++-12: not found", ("apt install g++-12",)),
        (
            "nvcc fatal   : The version ('110000') of the host compiler ('Apple clang') is not supported",
            ("xcode-select",),
        ),
        ("C:\\a.cpp(3): error C2220: the following warning is treated as an error", ('$env:_CL_ = "/WX-"',)),
        ("ImportError: libnvToolsExt.so.1: cannot open shared object file", ("nvidia-nvtx-cu12",)),
        ("a.cu(5): fatal error C1083: Cannot open include file: 'nvToolsExt.h'", ("nvtx3/nvToolsExt.h",)),
        (
            "  V11.8.89 in '/a/include' and V12.1.66 in '/b/include'\n  Found two conflicting CUDA versions:",
            ("`/b/include`",),
        ),
        ("a.cu:3:10: fatal error: cuda_fp8.h: No such file or directory", ("CUDA 11.8 or newer",)),
        ('a.cu(4): error: identifier "cusparseScsrmm2" is undefined', ("CUDA 10.2, the last",)),
        (
            (
                "ImportError: /e/lib/python3.10/site-packages/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
                "__nvJitLinkComplete_12_4, version libnvJitLink.so.12"
            ),
            ('LD_LIBRARY_PATH="/e/lib/python3.10/site-packages/nvidia/nvjitlink/lib:',),
        ),
        (
            "C:/e/CMakeLists.txt:2 (project):\n  No CMAKE_CUDA_COMPILER could be found.",
            ('CUDACXX = "${env:CUDA_PATH}',),
        ),
        (
            "/usr/src/CMakeLists.txt:2 (project):\n  No CMAKE_CUDA_COMPILER could be found.",
            ("/usr/local/cuda/bin/nvcc",),
        ),
        ("    CUDA::cublasLt\n\n  but the target was not found.", ("behind `CUDA::cublasLt`",)),
        ("/usr/src/a.cpp:12:5: error: 'AT_CHECK' was not declared in this scope", ("s/\\bAT_CHECK\\b/TORCH_CHECK/g",)),
        ("/usr/bin/ld: cannot find -lc10", ("`torch/lib`",)),
        (
            (
                "C:\\CUDA\\v9.2\\crt/host_config.h(1): fatal error C1189: unsupported Microsoft Visual Studio "
                "version! Only the versions 2012, 2013, 2015 and 2017 are supported!"
            ),
            ("-vcvars_ver=14.13",),
        ),
        ("error STL1002: Unexpected compiler version, expected CUDA 10.1 Update 2 or newer.", ("CUDA 10.1 or newer",)),
        ("nvcc fatal   : Host compiler targets unsupported OS.", ("On Linux give it g++", "On Windows it takes MSVC")),
        ("error MSB4019: The imported project Microsoft.Cpp.Default.props was not found.", ("MSBuild of .NET",)),
        ("  Could not find compiler set in environment variable CUDACXX:\n\n  $~/bin/nvcc.", ("no `~`, no `$`",)),
        ("/usr/src/a.cu:8:10: fatal error: glm/glm.hpp: No such file or directory", ("`glm`", "libglm-dev")),
        ("a.h:6:10: fatal error: cusparse.h: No such file or directory\n/usr/bin/gcc", ("`libcusparse-dev`",)),
        ("LINK : fatal error LNK1181: cannot open input file 'b\\freqencoder.obj'", ("use_ninja=False",)),
        ("LINK : fatal error LNK1181: cannot open input file 'C:\\Program Files\\x\\lib\\x64.obj'", ("is a folder",)),
        ("x.obj : error LNK2001: unresolved external symbol __imp_THFloatTensor_cadd", ("`ATen.lib`",)),
        ("ptxas a.ptx, line 9; fatal   : Unsupported .version 8.5; current version is '7.5'", ("CUDA 12.5 or newer",)),
        (
            (
                "/e/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc -c a.cu\n"
                "ptxas a.ptx, line 9; fatal   : Unsupported .version 9.1; current version is '9.0'"
            ),
            ("nvidia-nvvm",),
        ),
        ("nvc++-Error-Unknown switch: -fwrapv", ("compiler_option_unknown", "export CC=gcc CXX=g++")),
        ("nvcc fatal   : Unknown option 'Wl,--no-as-needed'", ("CUDA_SEPARABLE_COMPILATION",)),
        ("a.obj : error LNK2001: unresolved external symbol __cudaRegisterLinkedBinary_49_x", ("dlink=True",)),
        (
            (
                "/usr/bin/ld: a.o: undefined reference to symbol '_ZTTN5torch2nn10LinearImplE'\n"
                "/usr/bin/ld: /l/libtorch_cpu.so: error adding symbols: DSO missing from command line"
            ),
            ("`-ltorch_cpu`",),
        ),
        ("CMake Error: Could not create named generator Visual Studio 17 2022", ("cmake_too_old", "3.21")),
        (
            'a.cu(7): error: calling a constexpr __host__ function("fmin") from a __global__ function("f")',
            ("--expt-relaxed-constexpr",),
        ),
        ('a.cu(7): error: calling a __host__ function("std::fmin<float, double> ") from a', ("cast them to one",)),
        ("a.cpp:23:37: error: 'getCurrentCUDAStream' is not a member of 'at::cuda'", ("ATen/cuda/CUDAContext.h",)),
        ("nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)", ("TORCH_CUDA_ARCH_LIST",)),
        ('/c/thrust/system/cuda/config.h(152): error: "thrust::cub" is ambiguous', ("using namespace thrust",)),
        (
            "error: [Errno 20] Not a directory: '/usr/local/cuda-12.1/bin/nvcc/bin/nvcc'",
            ("cuda_home_unset", "names nvcc itself", "export CUDA_HOME=/usr/local/cuda-12.1"),
        ),
        (
            (
                "/usr/include/c++/11/bits/shared_ptr_base.h(1191): error: more than one instance of overloaded "
                'function "std::__to_address" matches the argument list:'
            ),
            ("source_code_error", '= std::__to_address(__r.get())/" /usr/include/c++/11/bits/shared_ptr_base.h'),
        ),
        ("C:\\b\\n.h(2): error C3861: '_addcarry_u64': identifier not found", ("machine_type_conflict", "x64 Native")),
        (
            (
                "/usr/bin/ld: a.o: undefined reference to symbol 'shm_unlink@@GLIBC_2.2.5'\n"
                "//lib/x86_64-linux-gnu/librt.so.1: error adding symbols: DSO missing from command line"
            ),
            ("unresolved_external_symbol", "`-lrt`"),
        ),
        (
            (
                "CMake Error at /usr/share/cmake-3.28/Modules/CMakeTestCUDACompiler.cmake:59 (message):\n"
                "  is not able to compile a simple test program.\n"
                "    /usr/include/c++/13/type_traits:1406:48: error: '_Tp' is not a class"
            ),
            ("gcc_too_new_for_cuda", "CXX=g++-12"),
        ),
        ("ld: library not found for -lomp", ("linker_input_missing", "brew install libomp")),
        ("ld: library 'omp' not found", ("linker_input_missing", "brew install libomp")),
        ("clang: error: unsupported option '-fopenmp'", ("Apple's clang", "brew install libomp")),
        (
            "C:/CUDA/v11.8/inc\\cub/device/dispatch/dispatch_segmented_sort.cuh(338): error: expected an identifier",
            ("source_code_error", "-DWIN32_LEAN_AND_MEAN"),
        ),
        (
            "ptxas a.ptx, line 8; error   : Instruction 'shfl' without '.sync' is not supported on .target sm_70 and",
            ("cuda_api_removed", "old copy of CUB"),
        ),
        (
            "conv.h:45:9: error: cannot convert 'const torch::enumtype::kFanIn' to 'int'",
            ("cxx_standard_too_low", "-std=c++17"),
        ),
        (
            "unable to execute '/usr/local/cuda-10.1:/bin/nvcc': No such file or directory",
            ("cuda_home_unset", "export CUDA_HOME=/usr/local/cuda-10.1"),
        ),
        (
            'rasterizer_impl.h(22): error: namespace "std" has no member "uintptr_t"',
            ("source_code_error", 'NVCC_APPEND_FLAGS="-include cstdint"'),
        ),
        (
            'Target "dr" links to target "CUDA::cublas" but the target was not found.',
            ("cuda_dev_headers_missing", "find_package(CUDAToolkit REQUIRED)"),
        ),
        (f"{UNSET}CUDA_cublas_device_LIBRARY (ADVANCED)", ("cuda_dev_headers_missing", "no `cublas_device` any more")),
        (f"{UNSET}LIBNVTOOLSEXT", ("nvtx_missing", "-DLIBNVTOOLSEXT=")),
        (f"{UNSET}LIBGLOG", ("cmake_package_missing", "-DLIBGLOG=")),
        (
            "make[2]: *** No rule to make target '/usr/local/cuda/lib64/libnvToolsExt.so', needed by 'a'.  Stop.",
            ("nvtx_missing", "CUDA_TOOLKIT_ROOT_DIR", "libtorch 2.5"),
        ),
        (
            "ninja: error: '/usr/local/cuda-9.0/lib64/libcublas.so', needed by 'lib/a.so', missing and no known rule",
            ("linker_input_missing", "belongs to the CUDA toolkit"),
        ),
        ("Portable.h:35:2: error: #error Compiler must support SSE2", ("unsupported_on_platform", "x86 processors")),
        (
            'a.hpp(40): error: namespace "cutlass::platform" has no member "is_unsigned_v"',
            ("cxx_standard_too_low", "/Zc:__cplusplus"),
        ),
        (
            "a.h(7): error: expected a comma (the one-argument version of static_assert is not enabled in this mode)",
            ("cxx_standard_too_low", "-std=c++17"),
        ),
        ('C:\\b\\softmax.h(75): error: identifier "M_LOG2E" is undefined', ("_USE_MATH_DEFINES",)),
        (
            "a.cpp(1): error C2398: Element '1': conversion from 'int64_t' to 'c10::DeviceIndex' requires a narrowing",
            ("static_cast<c10::DeviceIndex>",),
        ),
        (
            "C:\\CUDA\\v12.1;C:\\CUDA\\v11.6;\\bin\\nvcc -c a.cu\nCreateProcess failed: The system cannot find",
            ("cuda_home_unset", '$env:CUDA_HOME = "C:\\CUDA\\v12.1"'),
        ),
        (
            "RuntimeError: Could not locate a supported Microsoft Visual C++ installation",
            ("cl_not_on_path", "x64 Native Tools"),
        ),
        (
            "lto1: error: bytecode stream in 'a.o' generated with LTO version 12.0 instead of the expected 11.3",
            ("cmake_cache_stale", "12.0 and 11.3", "-fno-lto"),
        ),
        (
            "nvcc fatal   : Value 'native' is not defined for option 'gpu-architecture'",
            ("cuda_arch_unsupported_by_nvcc", "-arch=sm_86"),
        ),
        ("RuntimeError: Cannot find ptxas", ("compiler_tool_missing", "`ptxas` is a part of the CUDA toolkit")),
        # CMake breaks the line before the name of the function.
        (
            (
                "  error: exception specification is incompatible with that of previous\n"
                '  function "rsqrt" (declared at line 206 of\n  /usr/include/bits/mathcalls.h)'
            ),
            ("glibc_too_new_for_cuda", "noexcept (true)"),
        ),
        ("C:\\a.cpp : fatal error C1128: number of sections exceeded object file format limit", ("/bigobj",)),
    ],
)
def test_each_spelling_of_a_cause_has_its_own_remedy(log: str, says: tuple[str, ...]) -> None:
    text = told(log)
    for word in says:
        assert word in text


def test_a_patch_of_pytorch_comes_after_what_mends_every_project() -> None:
    policy = (
        "CMake Error at CMakeLists.txt:15 (message):\n  Compatibility with CMake < 3.5 has been removed from CMake."
    )
    other = diagnose_text(f"Building wheel for sentencepiece\n{policy}\n").causes[0].whole
    assert "CMAKE_POLICY_VERSION_MINIMUM" in other.commands[0]
    own = diagnose_text(f"cd /src/pytorch/third_party\n{policy}\n").causes[0].whole
    assert own.commands[0].startswith("rekindle patch")


def test_a_kernel_that_is_built_at_run_time_is_no_missing_binary() -> None:
    log = "No pre-built kernel is found, build and load it now\n/usr/bin/ld: cannot find -lcudart\n"
    assert diagnose_text(log).causes[0].label == "cuda_dev_headers_missing"


def test_both_systems_are_not_told_at_once() -> None:
    fix = diagnose_text("OSError: CUDA_HOME environment variable is not set.\n").causes[0].whole
    assert fix.text.count("Install the CUDA toolkit") == 1


@pytest.mark.parametrize(("asked", "instead"), [("compute_89", "8.6"), ("compute_103", "10.0")])
def test_the_number_that_runs_too_is_one_that_an_older_nvcc_knows(asked: str, instead: str) -> None:
    assert f"TORCH_CUDA_ARCH_LIST={instead}" in told(f"/usr/bin/nvcc fatal   : Unsupported gpu architecture '{asked}'")
