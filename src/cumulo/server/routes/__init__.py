"""The HTTP API: every URL in one table. All answers are JSON unless it says otherwise; failures are RFC 9457 problems.

GET    /v1/health                    who answers here; needs no token
GET    /v1/me                        whom the server takes you for
GET    /v1/schema/run-file           JSON Schema of the run file
GET    /openapi.json                 OpenAPI 3.1 of all this; needs no token
GET    /metrics                      Prometheus text

POST   /v1/plans                     what would happen if a run were submitted
POST   /v1/runs                      submit a run (Idempotency-Key)
GET    /v1/runs                      runs, newest first
GET    /v1/runs/RUN                  one run; RUN is an id or a name
PATCH  /v1/runs/RUN                  want it cancelled, stopped or running
GET    /v1/runs/RUN/units            its units
GET    /v1/runs/RUN/instances        its instances
GET    /v1/runs/RUN/why              why it stands where it stands
GET    /v1/runs/RUN/logs             its logs: server-sent events, or bytes
GET    /v1/runs/RUN/files            files of an instance, as a tar
PUT    /v1/runs/RUN/files            files into an instance, from a tar
WS     /v1/runs/RUN/exec             a command inside an instance
WS     /v1/runs/RUN/ports/PORT       a TCP connection to a port of an instance
GET    /v1/names                     names of runs, for completion
GET    /v1/queue                     what waits, in order

GET    /v1/offers                    what can be launched
GET    /v1/prices                    spot prices as they were
GET    /v1/reservations              what is reserved
POST   /v1/reservations              reserve GPUs for a project
DELETE /v1/reservations/RESERVATION  give one back
POST   /v1/advice                    which GPU, how many, how long, how much
GET    /v1/nodes                     nodes and their devices
GET    /v1/nodes/NODE                one node; NODE is an id or a name
GET    /v1/telemetry                 what devices and instances are doing
GET    /v1/events                    what happened; server-sent events with follow
GET    /v1/usage                     what was used and what it cost

POST   /v1/blobs/missing             which blobs are not here yet
POST   /v1/blobs                     upload blobs
GET    /v1/tokens                    your tokens
POST   /v1/tokens                    a new one, shown once
DELETE /v1/tokens/ID                 revoke one
GET    /v1/storage                   what lies on the disk
PATCH  /v1/storage                   set how long it is kept
POST   /v1/storage/sweep             remove what retention no longer keeps
GET    /v1/doctor                    what is and what is not in order
"""

from fastapi import APIRouter

from cumulo.server.routes import (
    advice,
    blobs,
    doctor,
    events,
    exec,
    files,
    logs,
    market,
    meta,
    metrics,
    nodes,
    queue,
    runs,
    storage,
    tokens,
    usage,
)

ROUTERS: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (
        *(meta, runs, logs, files, exec, queue, advice, nodes, events),
        *(market, usage, blobs, tokens, storage, doctor, metrics),
    )
)
