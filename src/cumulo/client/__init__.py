"""The Python SDK over the HTTP API: `from cumulo.client import Client`.

Synchronous and typed, on the standard library's HTTP client, so that importing it costs a command line next to nothing;
pydantic, YAML and websockets are imported only by what needs them.
"""

from cumulo.client.api import Client
from cumulo.client.endpoint import Endpoint
from cumulo.domain.errors import CumuloError

__all__ = ["Client", "CumuloError", "Endpoint"]
