# flash-attention style kernels for B200 and the RTX 5090 desk machine
FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04

RUN apt-get update && apt-get install -y git python3 python3-venv python3-dev build-essential && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH="/opt/venv/bin:${PATH}"
ENV MAX_JOBS=4

RUN pip install --no-cache-dir torch==2.5.1 torchvision==0.20.1 --index-url https://download.pytorch.org/whl/cu124
RUN pip install --no-cache-dir "numpy<2" ninja packaging wheel "setuptools<75"

ENV TORCH_CUDA_ARCH_LIST="12.0"
WORKDIR /build
COPY . /build/kernels
RUN cd kernels && pip install -v .
