"""Everything compiled against torch: the audit of an environment, and CUDA extension projects."""
