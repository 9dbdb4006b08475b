"""What can be opened into an instance, for the server: it knows engines only through `control`."""

from cumulo.engines.protocol import ByteStream, ExecRequest, FilesRequest, PortRequest, StreamRequest

__all__ = ["ByteStream", "ExecRequest", "FilesRequest", "PortRequest", "StreamRequest"]
