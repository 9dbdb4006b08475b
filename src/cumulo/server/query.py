"""A query parameter that no route knows is refused: a misspelt filter that is ignored answers with everything."""

import difflib

from starlette.requests import HTTPConnection

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable


async def refuse_unknown(connection: HTTPConnection) -> None:
    """Raises CumuloError (invalid_request) with the nearest known name."""
    dependant = getattr(connection.scope.get("route"), "dependant", None)
    known = [parameter.alias for parameter in dependant.query_params] if dependant else []
    for name in connection.query_params:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known) or 'none'}"
            raise CumuloError("invalid_request", f"the query parameter {printable(name, 40)!r} is not known", hint=hint)
