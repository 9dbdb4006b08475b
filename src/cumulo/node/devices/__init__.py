"""The accelerators of this machine: a protocol, NVML, and emulated devices where there are none."""
