# syntax=docker/dockerfile:1
ARG CUDA=12.6.3
FROM nvidia/cuda:${CUDA}-devel-ubuntu22.04
SHELL ["/bin/bash", "-c"]
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends git g++ python3.10 python3.10-dev python3-pip curl ca-certificates \
 && rm -rf /var/lib/apt/lists/*
RUN git clone --depth 1 -b v2.9.0 --recurse-submodules --shallow-submodules https://github.com/pytorch/pytorch /pytorch
WORKDIR /pytorch
RUN pip install -r requirements.txt
RUN export TORCH_CUDA_ARCH_LIST="8.6"
ENV USE_CUDA=1 BUILD_TEST=0 USE_NCCL=0
RUN python3 setup.py bdist_wheel |& tee /build.log
