"""python -m webshop.goods"""

from webshop.goods.service import service

service.run()
