"""Runtimes: how the local engine isolates an instance."""

from cumulo.node.runtimes.process import ProcessRuntime
from cumulo.node.runtimes.protocol import Runtime, Stage, StageName, StageRequest
from cumulo.node.runtimes.sandbox import SandboxRuntime

__all__ = ["ProcessRuntime", "Runtime", "SandboxRuntime", "Stage", "StageName", "StageRequest"]
