"""Schemathesis throws what OpenAPI allows, and what it forbids, at every URL: no fault, and every answer as told."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from cumulo.server.app import make_api

# Their bodies and answers are streams; tests of their own hold them to what they should be.
STREAMS = r"/(logs|files)$|^/v1/blobs$"
# The token is ours to send, whatever a case would rather have there.
DESCRIPTION = {key: value for key, value in make_api().openapi().items() if key != "security"}
LOADED = schemathesis.openapi.from_dict(DESCRIPTION).exclude(path_regex=STREAMS)
OPERATIONS = [found.ok() for found in LOADED.get_all_operations() if isinstance(found, Ok)]


def cases():
    for operation in OPERATIONS:
        yield pytest.param(operation, GenerationMode.POSITIVE, id=f"{operation.label} allowed")
        # Any text may stand in a path, so there is nothing to forbid in it.
        if operation.body or operation.query:
            yield pytest.param(operation, GenerationMode.NEGATIVE, id=f"{operation.label} forbidden")


@pytest.mark.parametrize(("operation", "mode"), list(cases()))
def test_every_url_answers_as_its_description_says(box, operation, mode):
    @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        if str(case.query.get("follow")).lower() in ("true", "1", "on", "t", "y", "yes"):
            del case.query["follow"]  # a stream has no end to wait for
        case.call_and_validate(
            base_url=f"http://127.0.0.1:{box.port}",
            headers={"Authorization": f"Bearer {box.token}"},
            timeout=20,
            # A schema can't say what an ask for GPUs or a cursor is, so some of what it allows is rightly refused.
            excluded_checks=[positive_data_acceptance],
        )

    check()
