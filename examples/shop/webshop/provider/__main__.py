"""python -m webshop.provider"""

from webshop.provider.service import service

service.run()
