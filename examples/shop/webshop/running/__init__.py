"""The launcher: a PostgreSQL and a broker, all services as processes, and faults in them.

Services know nothing of it; they read their settings, and may be started by anything else.
"""
