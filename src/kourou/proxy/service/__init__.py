"""The RPCs of `MessagingService`, each group of them a class with `handlers()`.

handlers.py          calls into functions that know messages; failures into statuses
telemetry.py         Telemetry: settings, and commands to clients
broker_requests.py   what brokers ask of a client, passed on over Telemetry
heartbeats.py        Heartbeat, NotifyClientTermination: what brokers know of clients
receives.py          ReceiveMessage
acks.py              AckMessage, ChangeInvisibleDuration
dead_letters.py      ForwardMessageToDeadLetterQueue, and messages that clients do not get
pulls.py             PullMessage and offsets
"""
