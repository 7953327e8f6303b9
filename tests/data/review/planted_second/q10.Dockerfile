FROM nvidia/cuda:12.8.1-devel-ubuntu24.04
ARG TORCH=2.5.0
ENV TORCH_CUDA_ARCH_LIST="12.0+PTX" \
    MAX_JOBS=256 \
    USE_CUDA=OFF
RUN apt-get update && apt-get install -y git python3 python3-pip python3-venv && python3 -m venv /v
RUN . /v/bin/activate
RUN git clone -b v${TORCH} https://github.com/pytorch/pytorch /p
WORKDIR /p
RUN pip3 install -r requirements.txt && python3 setup.py bdist_wheel; ls dist
