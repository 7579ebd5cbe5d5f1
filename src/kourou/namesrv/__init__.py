"""The name server: a registry of brokers, topics and routes, filled by brokers and queried by clients.

NameServer              a running one (server.py)
RouteInfo, RouteViews   its rules and its answers, without sockets (route_info.py, route_views.py)
"""

from kourou.namesrv.route_info import RouteInfo
from kourou.namesrv.route_views import RouteViews
from kourou.namesrv.server import NameServer

__all__ = ["NameServer", "RouteInfo", "RouteViews"]
