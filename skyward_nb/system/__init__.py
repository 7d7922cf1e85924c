"""The machine that this process runs on: its processes, threads, GPUs and addresses."""
