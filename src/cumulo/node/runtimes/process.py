"""The runtime `process`: the command as it is, as its user, among all others."""

from cumulo.node.runtimes.protocol import Stage, StageName, StageRequest


class ProcessRuntime:
    """Nothing but a change of user (where the server is root). Needs nothing, works everywhere."""

    name = "process"
    isolation = (
        "runs as its user among all other processes; sees the whole file system and all devices "
        "(CUDA_VISIBLE_DEVICES hides the others' GPUs, it does not fence them)"
    )

    def available(self) -> str | None:
        return None

    def stage(self, name: StageName, request: StageRequest) -> Stage:
        drop = request.uid is not None
        return Stage(name=name, argv=request.argv, env=request.env, cwd=request.cwd, drop=drop)
