"""The HTTP server under the application: connections, their guards, graceful ends, several processes.

===============  ==============================================================================
``guards``       limits of a connection, and how a connection that breaks them is answered
``heads``        heads of requests: what is refused, what the application gets
``timer``        a connection's one timer
``cycle``        one request and its answer: what the application calls to receive and send
``lifetime``     how long a connection lives, and how it ends
``protocol``     one connection: bytes to requests, in order, within limits
``server``       listens, stops gracefully
``listening``    sockets to listen on
``workers``      several processes on one port, replaced when they die
``worker``       what such a process runs
===============  ==============================================================================

Built on uvicorn's httptools protocol. Nothing here knows routes, stores or the configuration file beyond its
``http`` part.
"""
