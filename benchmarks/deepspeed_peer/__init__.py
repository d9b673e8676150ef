"""The parts of ``benchmarks/deepspeed_peer.py``: our tuner beside DeepSpeed's."""
