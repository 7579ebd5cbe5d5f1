"""An online shop on Kourou and PostgreSQL: orders and payments that stay right whatever dies, and when.

    errors.py events.py money.py order.py settings.py stock.py   what services share
    kit/         what a service is made of: HTTP, database, events, kill points
    goods/ coupons/ users/ orders/ …           one folder, one process, one schema of the database each

Begin with goods/: the smallest service. Each has `domain.py` (its rules; those of goods are in
stock.py), `tables.py` (its SQL) and `service.py` (HTTP and messages).
"""
