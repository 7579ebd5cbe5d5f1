"""python -m webshop.coupons"""

from webshop.coupons.service import service

service.run()
