"""The gRPC clients of a proxy: who they are, their settings and Telemetry streams, the messages they hold.

registry.py           ClientRegistry: the client of each call; when clients come and go
proxy_client.py       ProxyClient: one client, with its links to brokers
client_settings.py    settings that clients send, and the answer
telemetry_stream.py   TelemetryStream: one open stream, and commands over it that wait
held_messages.py      HeldMessages: messages whose invisible time is extended
renewals.py           Renewals: when it is extended, and given back
handle_requests.py    receipt handles as clients see them, and requests with them
"""
