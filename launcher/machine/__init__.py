"""What there is to launch on: hosts, slots, cores, GPUs, ports. Not: what is launched."""
