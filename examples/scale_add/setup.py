from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="scale_add",
    version="1.0",
    packages=["scale_add"],
    ext_modules=[CUDAExtension("scale_add._C", ["src/scale_add.cpp", "src/scale_add_kernel.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
