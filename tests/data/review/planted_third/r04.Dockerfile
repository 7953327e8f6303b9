FROM ubuntu:22.04
RUN apt-get update && apt-get install -y wget git gcc-12 g++-12 python3.10 python3.10-venv python3.10-dev python3-pip && rm -rf /var/lib/apt/lists/*
RUN wget -q https://developer.download.nvidia.com/compute/cuda/11.7.1/local_installers/cuda_11.7.1_515.65.01_linux.run && sh cuda_11.7.1_515.65.01_linux.run --silent --toolkit && rm cuda_11.7.1_515.65.01_linux.run
ENV CUDA_HOME=/usr/local/cuda-11.7 PATH=/usr/local/cuda-11.7/bin:$PATH
ENV CC=gcc-12 CXX=g++-12
RUN git clone --recursive --branch v2.0.1 https://github.com/pytorch/pytorch /pytorch
WORKDIR /pytorch
RUN pip3 install cmake==4.0.3 ninja pyyaml "numpy>=2" "setuptools<66" wheel typing_extensions
ARG TORCH_CUDA_ARCH_LIST="8.9"
ENV MAX_JOBS=8 USE_CUDA=1 BUILD_TEST=0
RUN python3 setup.py bdist_wheel
