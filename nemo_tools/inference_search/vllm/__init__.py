"""The engine vllm: its own benchmarks in jobs, and batches in one process on this machine."""

from .engine import VllmEngine
