"""The web console: pages and a JSON API over `kourou.admin`, for any RocketMQ cluster.

Needs the extra `console` (Starlette, uvicorn). Started by `kourou console` or
`kourou standalone --console`.
"""
