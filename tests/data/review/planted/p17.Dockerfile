# ComfyUI image for GTX 1060 and an RTX 5070
FROM nvidia/cuda:11.7.1-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3 python3-pip git && rm -rf /var/lib/apt/lists/*
RUN pip3 install torch==2.6.0 torchvision==0.19.0 torchaudio==2.6.0 --index-url https://download.pytorch.org/whl/cu124
RUN pip3 install flash-attn
ENV MAX_JOBS=2
ENV TORCH_CUDA_ARCH_LIST="61;120"
CMD ["python3", "main.py"]
