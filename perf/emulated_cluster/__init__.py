"""An emulated cluster: network namespaces that libraries take for separate hosts (see perf/cluster)."""
