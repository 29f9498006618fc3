"""The gRPC door (A2A v1.0 §10): ``lf.a2a.v1.A2AService`` on one port for all agents.

``server`` opens the port and closes it in good order; ``service`` makes the methods from the operation table;
``calls`` reads what comes in, ``streams`` follows a log, ``codec`` turns protobuf into our JSON and back, ``errors``
renders errors, ``health`` answers ``grpc.health.v1``. It needs the extra ``grpc``: imported only if GRPC_PORT is set.
"""
