"""What a service of the shop is made of.

    service.py      Service: the process; HTTP routes, consumers, start and stop
    database.py     Database: a pool of connections to the service's schema, and its inbox
    emit.py         Emitter, Unit: a change in the database and its events in one step, both ways
    relay.py        the process that sends what is in the outboxes
    rows.py         insert once, and compare and set
    records.py      a deduction and its undoing, each once, in whatever order they come
    later.py        LaterRows: measurements, written in the background
    calls.py        Calls: HTTP requests to other services, repeated while they are away
    http_client.py  HttpClient: HTTP over connections that are kept
    kill_points.py  places where a test can kill the process

How to write a service: see goods/service.py, and for one that emits events orders/service.py.
"""
