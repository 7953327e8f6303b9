# Apex for the V100 nodes
FROM pytorch/pytorch:2.2.2-cuda12.1-cudnn8-runtime
RUN apt-get update && apt-get install git build-essential
ENV TORCH_CUDA_ARCH_LIST=7.0
RUN git clone https://github.com/NVIDIA/apex /apex
WORKDIR /apex
RUN pip install -v --no-cache-dir --config-settings "--build-option=--cpp_ext" --config-settings "--build-option=--cuda_ext" ./
ENV MAX_JOBS=4
