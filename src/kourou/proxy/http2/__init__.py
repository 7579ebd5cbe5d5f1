"""gRPC over HTTP/2: the port, its connections, and the calls that they carry."""
