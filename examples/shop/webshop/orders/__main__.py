"""python -m webshop.orders"""

from webshop.orders.service import service

service.run()
