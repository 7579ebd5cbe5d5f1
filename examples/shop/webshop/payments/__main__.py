"""python -m webshop.payments"""

from webshop.payments.service import service

service.run()
