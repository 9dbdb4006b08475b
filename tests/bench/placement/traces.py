"""A trace of openb's form that fits on a screen, and the real one where it is."""

from pathlib import Path

import pytest

REAL = Path(__file__).parents[4] / "shared" / "traces" / "openb"
needs_the_real_one = pytest.mark.skipif(not REAL.is_dir(), reason="../shared is absent")

NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,32000,65536,2,T4
n1,32000,65536,2,T4
n2,64000,131072,4,V100M16
n3,64000,131072,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
c,4000,8192,1,500,
a,2000,4096,1,1000,T4|G2
b,8000,16384,2,1000,
d,1000,1024,0,0,
e,4000,8192,1,500,
"""


LARGER = {
    "nodes": NODES + "".join(line + "\n" for line in NODES.splitlines()[1:] * 19),
    "pods": PODS + "".join(line + "\n" for line in PODS.splitlines()[1:] * 39),
}


def write(folder: Path, *, pods: str = PODS, nodes: str = NODES, name: str = "default") -> Path:
    """A folder with one pod list."""
    (folder / "openb_node_list_gpu_node.csv").write_text(nodes)
    (folder / f"openb_pod_list_{name}.csv").write_text(pods)
    return folder
