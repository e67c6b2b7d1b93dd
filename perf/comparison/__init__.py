"""EPCCL against other libraries on the same machine in the same hour (see perf/compare)."""
